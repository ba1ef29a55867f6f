// Messages that the broker dropped, with an example of each reason, and connections that it refused.

import { h, name, percent, replace, short, table, title, whole } from "./dom.js";
import { get } from "./api.js";
import { follow, live, rate } from "./live.js";

const EVERY_MS = 5000;
const OTHER = "other";          // drops without a connected client: offline sessions, bridges, retained messages
const NO_CLIENT = "no client connected";
const DROPS = {
  queue_messages: "The session's queue was full (max_queued_messages).", queue_bytes: "The session's queue was full (max_queued_bytes).",
  qos0_blocked: "QoS 0, and the client did not read.", output_bytes: "The client's output was full (max_output_bytes).",
  packet_size: "The message was larger than the client accepts.", expired: "The message expired before it was sent.",
  acl_read: "A rule does not let the client read the topic.", acl_write: "A rule does not let the client write to the topic.",
  memory: "The broker was at its memory_limit.", payload_size: "The payload was larger than message_size_limit.",
  quota: "A limit of the session was reached.", session_ended: "The session ended with messages in its queue.",
  retained: "The message could not be retained.", transform: "A plugin dropped the message.", disk: "The store could not take the message.",
  replaced: "A newer message of the topic took its place (last_value).", loop: "The message had come from that bridge.",
  unreadable: "The message could not be read from the disk.", no_name: "A bridge has no name for the topic.",
};
const REFUSALS = {
  max_connections: "The listener had max_connections.", global_max_connections: "The broker had global_max_connections.",
  global_max_clients: "The broker had global_max_clients.", descriptors: "The process had no descriptor left.",
  memory: "The broker was at its memory_limit.", access: "The login was refused.", auth_timeout: "The login was not decided in time.",
  disk: "The store could not take the session.", evicted: "A newer connection took the place of one that had sent no CONNECT.",
};

function rows(prefix, texts) {
  return Object.entries(live.now).filter(([key]) => key.startsWith(prefix)).map(([key, value]) => {
    const reason = key.slice(prefix.length);
    return { reason, value, rate: rate(key) ?? 0, text: texts[reason] ?? "" };
  }).sort((one, other) => other.value - one.value);
}

/** Return what the broker kept of the last drop. Client id and topic may be cut, and a topic may be hidden from this user. */
function example(one) {
  if (!one?.lastTime) return "–";
  const id = one.clientid;
  const whose = id === null ? "no client" : h("span", {}, id === "" || one.clientidCut ? [name(id, 64), one.clientidCut ? "…" : "(empty)"] :
    h("a", { href: `#/client?${new URLSearchParams({ id })}` }, name(id, 64)));
  return h("span", { class: "example" }, whose,
    h("span", { class: "block" }, one.topic === null ? h("i", {}, "a topic that you may not read") : one.topic ? [name(one.topic, 120), one.topicCut ? "…" : ""] : "no topic"),
    h("time", { class: "block" }, new Date(one.lastTime * 1000).toLocaleString("sv-SE")));
}

/** Return the part of each listener in the drops. The counts of the feed are newer than these, so they are not shown beside them. */
function listeners(one) {
  const found = Object.entries(one?.listeners ?? {}).sort((first, second) => second[1] - first[1]);
  const all = found.reduce((sum, [, count]) => sum + count, 0);
  return found.length ? found.map(([label, count]) => h("span", { class: "block" }, label === OTHER ? NO_CLIENT : name(label, 40), ` ${percent(count, all)}`)) : "–";
}

function shown(caption, found, empty, examples = null) {
  const happened = found.filter((one) => one.value);
  return [table(caption, [
    { label: "Reason", wide: true, cell: (row) => h("span", {}, h("code", {}, row.reason), h("span", { class: "detail block" }, row.text)) },
    { label: "Count", number: true, cell: (row) => whole(row.value) },
    { label: "A second", number: true, cell: (row) => h("span", { class: row.rate > 0 ? "bad" : "" }, short(Math.round(row.rate * 10) / 10)) },
    ...(examples ? [{ label: "By listener", cell: (row) => listeners(examples.get(row.reason)) }, { label: "Last one", cell: (row) => example(examples.get(row.reason)) }] : []),
  ], happened, empty), h("p", { class: "detail" }, `Not since the start: ${found.filter((one) => !one.value).map((one) => one.reason).join(", ") || "–"}.`)];
}

export function drops(main) {
  const dropped = h("section", { "aria-labelledby": "dropped" });
  const refused = h("section", { "aria-labelledby": "refused" });
  let examples = new Map();
  let ended = false;
  let timer = 0;

  async function load() {
    try {
      const found = await get("drops");
      examples = new Map(found.drops.map((one) => [one.reason, one]));
      if (!ended) draw();
    } catch { /* the counts are shown without examples; the state of the feed is in the header */ }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  function draw() {
    if (!live.now || main.contains(document.activeElement?.closest("td"))) return;     // a link with the focus stays
    replace(dropped, h("h2", { id: "dropped" }, "Dropped messages"), shown("Dropped messages", rows("drops_", DROPS), "The broker has dropped no message.", examples));
    replace(refused, h("h2", { id: "refused" }, "Refused connections"), shown("Refused connections", rows("refused_", REFUSALS), "The broker has refused no connection."));
  }

  main.append(title("Drops", h("p", { class: "facts" }, "Since the start of the broker, with the last drop of each reason.")), dropped, refused);
  load();
  const stop = follow(draw);
  return () => { ended = true; clearTimeout(timer); stop(); };
}
