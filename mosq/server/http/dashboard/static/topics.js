// Topics by their levels: retained messages with number and bytes, look at one, clear one; and the rates of sampled messages.

import { ask, bytes, h, name, notice, part, perSecond, replace, table, title, toast, visible, whole } from "./dom.js";
import { change, get, session } from "./api.js";
import { live } from "./live.js";

/** Show a payload: JSON with indents, other text as it is, bytes in hexadecimal. */
export function payload(message, indent = false) {
  if (message.hex !== undefined) return h("code", { class: "payload hex" }, message.hex);
  let text = message.text;
  if (indent && /^\s*[[{]/.test(text)) {
    try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
  }
  return h("code", { class: "payload" }, indent ? text.split("\n").map(visible).join("\n") : visible(text));
}

function parts(prefix) {
  const levels = prefix === "" ? [] : prefix.split("/");
  return levels.map((level, i) => [level, levels.slice(0, i + 1).join("/")]);
}

function link(prefix) {
  return `#/topics?${new URLSearchParams({ prefix })}`;
}

const EVERY_MS = 5000;
const HOT_MAX = 100;
const EXACT_LEVELS = 2;         // the broker sums the rates of prefixes with so many levels

function isBelow(topic, prefix) {
  return prefix === "" || topic === prefix || topic.startsWith(`${prefix}/`);
}

/** Return the rates below a topic: those of the broker for short prefixes, otherwise the sum of the hottest topics there. */
function traffic(hot, topic) {
  const found = topic.split("/").length <= EXACT_LEVELS ? hot.prefixes.filter((one) => one.prefix === topic) : [];
  const parts = found.length ? found : hot.topics.filter((one) => isBelow(one.topic, topic));
  return parts.reduce((sum, one) => ({ messages: sum.messages + one.messages_per_second, bytes: sum.bytes + one.bytes_per_second }), { messages: 0, bytes: 0 });
}

/** Return the next levels below a prefix that have sampled messages. */
function busy(hot, prefix) {
  const depth = prefix === "" ? 0 : prefix.split("/").length;
  const all = [...hot.prefixes.map((one) => one.prefix), ...hot.topics.map((one) => one.topic)].map((one) => one.split("/"));
  return new Set(all.filter((levels) => levels.length > depth && isBelow(levels.join("/"), prefix)).map((levels) => levels[depth]));
}

export function topics(main, query) {
  const prefix = query.get("prefix") ?? "";
  const result = h("section", { "aria-label": "Levels" }, notice("Reading retained messages."));
  const detail = h("section", { "aria-label": "Retained message", "aria-live": "polite" });
  const summary = h("p", { class: "facts", role: "status" });
  let retained = null;
  let hot = null;
  let ended = false;
  let timer = 0;

  async function load() {
    try {
      retained = await get("retained", { prefix });
      if (!ended) show();
    } catch (error) {
      if (!ended) replace(result, notice(error.message, "bad"));
    }
  }

  /** Read the rates. Without them, the view has the retained messages only. */
  async function rates() {
    try {
      const found = await get("hot", { limit: HOT_MAX });
      hot = found.sampled ? found : null;
    } catch { hot = null; }
    if (ended) return;
    if (retained && !result.contains(document.activeElement)) show();
    timer = setTimeout(rates, EVERY_MS);
  }

  function show() {
    const found = retained;
    const all = live.now ? ` of ${whole(live.now.retained)}` : "";
    summary.textContent = found.complete ? `${whole(found.read)} retained messages${prefix ? " here" : ""}` :
      `The first ${whole(found.read)}${all} retained messages; open a level to see the others`;
    const rows = found.levels.map((one) => ({ ...one, topic: prefix ? `${prefix}/${one.name}` : one.name }));
    if (found.own !== null) rows.unshift({ name: ".", topic: prefix, topics: 1, bytes: found.own, own: found.own });
    const known = new Set(found.levels.map((one) => one.name));
    for (const level of hot ? busy(hot, prefix) : []) {
      if (!known.has(level)) rows.push({ name: level, topic: prefix ? `${prefix}/${level}` : level, topics: 0, bytes: 0, own: null });
    }
    for (const row of rows) row.traffic = hot && row.name !== "." ? traffic(hot, row.topic) : null;
    const all_ = Math.max(1, rows.reduce((sum, one) => sum + one.bytes, 0));
    replace(result, table("Levels of topics", [
      { label: "Level", wide: true, cell: (row) => (row.topics !== 1 || row.own === null ? h("a", { href: link(row.topic) }, name(row.name || "(empty)"), "/") : name(row.name === "." ? `${prefix} (itself)` : row.name || "(empty)")) },
      ...(hot ? [{ label: "Traffic", number: true, cell: (row) => (row.traffic?.messages ? h("span", {}, perSecond(row.traffic.messages), h("span", { class: "detail block" }, `${bytes(row.traffic.bytes)}/s`)) : "–") }] : []),
      { label: "Retained", number: true, cell: (row) => whole(row.topics) },
      { label: "Size", number: true, cell: (row) => bytes(row.bytes) },
      { label: "Share of size", cell: (row) => part(row.bytes, all_, `${bytes(row.bytes)} of ${bytes(all_)}`) },
      { label: "Message", cell: (row) => (row.own === null ? "–" : h("span", { class: "row tight" },
        h("button", { type: "button", onclick: () => look(row.topic), "aria-label": `Look at ${visible(row.topic)}` }, "Look"),
        h("button", { type: "button", class: "danger", disabled: !session.mayChange, onclick: () => clear(row.topic), "aria-label": `Clear ${visible(row.topic)}` }, "Clear"))) },
    ], rows, prefix ? "There are no retained messages here that you may read." : "There are no retained messages that you may read."),
    found.more ? h("p", { class: "detail" }, `${whole(found.more)} more levels are not shown.`) : null);
  }

  async function look(topic) {
    try {
      const found = await get("message", { topic });
      replace(detail, h("div", { class: "card" }, h("h2", {}, name(topic)),
        h("p", { class: "detail" }, bytes(found.size)), h("pre", { tabindex: 0 }, payload(found, true))));
      detail.scrollIntoView({ block: "nearest" });
    } catch (error) {
      toast(error.message, true);
    }
  }

  async function clear(topic) {
    if (!await ask("Clear this retained message?", h("span", {}, "The broker forgets the retained message of ", name(topic, 100), "."), "Clear")) return;
    try {
      await change("clear", { topic });
      toast("The retained message is cleared.");
      replace(detail);
    } catch (error) {
      toast(error.message, true);
    }
    load();
  }

  function go(event) {
    event.preventDefault();
    const wanted = event.target.elements.prefix.value.trim().replace(/\/?#?$/, "");
    if (link(wanted) === location.hash) load();
    else location.hash = link(wanted);
  }

  main.append(title("Topics", summary), h("form", { class: "row fields", onsubmit: go },
    h("label", { class: "grow" }, h("span", { class: "label" }, "Retained messages below"), h("input", {
      name: "prefix", "data-search": true, value: prefix, placeholder: "all topics; for example site/7", spellcheck: "false", autocomplete: "off", autocapitalize: "none",
    })), h("button", { type: "submit" }, "Show")),
  h("p", { class: "path" }, h("a", { href: link("") }, "all topics"), parts(prefix).map(([level, whole_]) => [" / ", h("a", { href: link(whole_) }, name(level || "(empty)", 60))])),
  result, detail);
  load();
  rates();
  return () => { ended = true; clearTimeout(timer); };
}
