// Clients: search and sort on the server, one page at a time; and one client with its subscriptions.

import { ask, bytes, duration, h, name, notice, replace, settled, table, title, toast, visible, whole } from "./dom.js";
import { change, get, session } from "./api.js";

const COUNT = 50;
const MOST = 1000;
const EVERY_MS = 5000;
const SORTS = [["id", "Client id"], ["queued", "Longest queue, with inflight"], ["bytes", "Largest queue"], ["unsent", "Slowest reader (unsent bytes)"], ["subscriptions", "Most subscriptions"]];
const STATES = [["all", "All sessions"], ["connected", "Connected"], ["offline", "Offline"]];

function select(label, options, value, onchange) {
  return h("label", {}, h("span", { class: "label" }, label),
    h("select", { onchange }, options.map(([id, text]) => h("option", { value: id, selected: id === value }, text))));
}

function state(row) {
  return h("span", { class: `badge ${row.connected ? "good" : ""}` }, row.connected ? "connected" : "offline");
}

export function address(row) {
  if (!row.connected) return "–";
  if (!row.address) return "unix socket";
  return row.address.includes(":") ? `[${row.address}]:${row.port}` : `${row.address}:${row.port}`;
}

const COLUMNS = [
  { label: "Client", wide: true, cell: (row) => (row.clientidCut ? name(row.clientid, 64) :
    h("a", { href: `#/client?${new URLSearchParams({ id: row.clientid })}` }, name(row.clientid, 64))) },
  { label: "User", cell: (row) => (row.username === null ? "–" : name(row.username, 40)) },
  { label: "State", cell: state },
  { label: "Address", cell: address },
  { label: "Queued", number: true, cell: (row) => whole(row.queued) },
  { label: "Inflight", number: true, cell: (row) => whole(row.inflight) },
  { label: "Queue", number: true, cell: (row) => bytes(row.queueBytes) },
  { label: "Unsent", number: true, cell: (row) => bytes(row.unsentBytes ?? 0) },
  { label: "Subs", number: true, cell: (row) => whole(row.subscriptions) },
];

export function clients(main, query) {
  const asked = { search: query.get("search") ?? "", sort: query.get("sort") ?? "id", state: query.get("state") ?? "all", offset: 0 };
  const result = h("section", { "aria-label": "Result", "aria-live": "off" });
  const summary = h("p", { class: "facts", role: "status" });
  const pages = h("div", { class: "row" });
  let timer = 0;
  let turn = 0;

  async function load() {
    clearTimeout(timer);
    turn += 1;
    const mine = turn;
    try {
      const found = await get("clients", { ...asked, count: COUNT });
      if (mine !== turn) return;
      show(found);
    } catch (error) {
      if (mine !== turn) return;
      replace(result, notice(error.message, "bad"));
    }
    timer = setTimeout(() => { if (!document.hidden) load(); else timer = setTimeout(load, EVERY_MS); }, EVERY_MS);
  }

  function show(found) {
    const last = asked.offset + found.clients.length;
    const examined = found.complete ? "" : ` of the first ${whole(found.examined)} sessions`;
    summary.textContent = found.matching ? `${whole(asked.offset + 1)} to ${whole(last)} of ${whole(found.matching)}${examined}` : "";
    const focused = result.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    replace(result, table("Clients", COLUMNS, found.clients, asked.search ? "No session matches the search." : "There are no sessions."));
    if (focused) [...result.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    const more = last < Math.min(found.matching, MOST);
    replace(pages,
      h("button", { type: "button", disabled: !asked.offset, onclick: () => turnPage(-COUNT) }, "Previous"),
      h("button", { type: "button", disabled: !more, onclick: () => turnPage(COUNT) }, "Next"),
      last >= MOST && found.matching > MOST ? h("span", { class: "detail" }, "Search to see further sessions.") : null);
  }

  function turnPage(by) {
    asked.offset = Math.max(0, asked.offset + by);
    load();
  }

  const search = settled((value) => { asked.search = value; asked.offset = 0; load(); });
  main.append(title("Clients", summary), h("div", { class: "row fields" },
    h("label", { class: "grow" }, h("span", { class: "label" }, "Search"), h("input", {
      type: "search", "data-search": true, maxlength: 200, placeholder: "client id, user or address", value: asked.search,
      oninput: (event) => search(event.target.value), spellcheck: "false", autocomplete: "off",
    })),
    select("State", STATES, asked.state, (event) => { asked.state = event.target.value; asked.offset = 0; load(); }),
    select("Sort by", SORTS, asked.sort, (event) => { asked.sort = event.target.value; asked.offset = 0; load(); })),
  result, pages);
  load();
  return () => { turn += 1; clearTimeout(timer); };
}

const FACTS = [
  ["User", (one) => (one.username === null ? "–" : name(one.username))], ["Address", address],
  ["Listener", (one) => (one.connected ? (one.listener || "unix socket") : "–")],
  ["Protocol", (one) => (one.connected ? `MQTT ${one.version}${one.protocol === "websockets" ? " over WebSocket" : ""}${one.tls ? ", TLS" : ""}` : "–")],
  ["Keep alive", (one) => (one.connected ? duration(one.keepalive) : "–")],
  ["Session ends", (one) => (one.connected ? one.sessionExpiry === null ? "never" : one.sessionExpiry ? `${duration(one.sessionExpiry)} after the connection` : "with the connection" : one.endsIn === null ? "never" : `in ${duration(one.endsIn)}`)],
  ["Will", (one) => (one.will ? "yes" : "no")], ["Queued", (one) => whole(one.queued)],
  ["Inflight", (one) => whole(one.inflight)], ["Queue", (one) => bytes(one.queueBytes)],
  ["Unsent", (one) => bytes(one.unsentBytes ?? 0)], ["Inbound QoS 2", (one) => whole(one.inbox)],
];

async function kick(one, load) {
  const sure = await ask("End this connection?", h("span", {}, "The client ", name(one.clientid, 100), " may connect again at once. Its session stays, and its will is published."), "End connection");
  if (!sure) return;
  try {
    await change("kick", { clientid: one.clientid });
    toast("The connection has ended.");
  } catch (error) {
    toast(error.message, true);
  }
  load();
}

/** Return the drops of the client that the broker keeps as examples, and how to see each one. */
function dropped(rows, id) {
  const command = visible(`mosq trace --client '${id.replaceAll("'", "'\\''")}'`);
  return [h("h2", {}, "Drops"), table("Last drops of this client", [
    { label: "Reason", wide: true, cell: (row) => h("code", {}, row.reason) },
    { label: "Topic", cell: (row) => (row.topic === null ? h("i", {}, "a topic that you may not read") : name(row.topic || "–", 120)) },
    { label: "Last one", cell: (row) => new Date(row.lastTime * 1000).toLocaleString("sv-SE") },
  ], rows, "No example of a drop is from this client."),
  h("p", { class: "detail" }, "The broker keeps the last drop of each reason, of all clients (", h("a", { href: "#/drops" }, "Drops"),
    "). This command shows each packet and each drop of this client from now on: ", h("code", {}, command))];
}

export function client(main, query) {
  const id = query.get("id") ?? "";
  const body = h("section", { "aria-label": "Client" }, notice("Loading."));
  const list = h("section", { "aria-label": "Subscriptions" });
  const lost = h("section", { "aria-label": "Drops" });
  const actions = h("div", { class: "row" });
  let ended = false;
  let timer = 0;

  async function load() {
    clearTimeout(timer);
    try {
      const one = (await get("client", { id })).client;
      if (ended) return;
      replace(body, h("dl", { class: "card properties" }, FACTS.map(([label, show]) => h("div", {}, h("dt", {}, label), h("dd", {}, show(one))))));
      replace(actions, state(one), h("button", {
        type: "button", class: "danger", disabled: !one.connected || !session.mayChange, onclick: () => kick(one, load),
        title: session.mayChange ? null : "You have no right to change anything.",
      }, "End connection"));
    } catch (error) {
      if (!ended) { replace(body, notice(error.message, "bad")); replace(actions); }
    }
    try {
      const { drops } = await get("drops");
      if (!ended) replace(lost, dropped(drops.filter((row) => row.lastTime && row.clientid === id && !row.clientidCut), id));
    } catch {
      if (!ended) replace(lost);
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  async function subscriptions(offset) {
    try {
      const found = await get("subscriptions", { id, offset });
      if (ended) return;
      const first = offset + 1;
      replace(list, h("h2", {}, `Subscriptions (${whole(found.totalCount)})`), table("Subscriptions", [
        { label: "Filter", wide: true, cell: (row) => name(row.topic) }, { label: "QoS", number: true, cell: (row) => row.qos },
        { label: "Options", cell: (row) => [row.noLocal && "no local", row.retainAsPublished && "retain as published"].filter(Boolean).join(", ") || "–" },
      ], found.subscriptions, "The client has no subscriptions."),
      found.totalCount > found.subscriptions.length ? h("div", { class: "row" },
        h("span", { class: "detail" }, `${whole(first)} to ${whole(offset + found.subscriptions.length)}`),
        h("button", { type: "button", disabled: !offset, onclick: () => subscriptions(Math.max(0, offset - 1000)) }, "Previous"),
        h("button", { type: "button", disabled: !found.more, onclick: () => subscriptions(offset + found.subscriptions.length) }, "Next")) : null);
    } catch (error) {
      if (!ended) replace(list);
    }
  }

  main.append(h("p", {}, h("a", { href: "#/clients" }, "← Clients")), title(""), actions, body, lost, list);
  replace(main.querySelector("h1"), name(id, 120));
  load();
  subscriptions(0);
  return () => { ended = true; clearTimeout(timer); };
}
