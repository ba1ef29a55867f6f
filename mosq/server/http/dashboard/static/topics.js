// Retained messages by the levels of their topics: number and bytes below each level, look at one, clear one.

import { ask, bytes, h, name, notice, replace, table, title, toast, visible, whole } from "./dom.js";
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

export function topics(main, query) {
  const prefix = query.get("prefix") ?? "";
  const result = h("section", { "aria-label": "Levels" }, notice("Reading retained messages."));
  const detail = h("section", { "aria-label": "Retained message", "aria-live": "polite" });
  const summary = h("p", { class: "facts", role: "status" });
  let ended = false;

  async function load() {
    try {
      const found = await get("retained", { prefix });
      if (!ended) show(found);
    } catch (error) {
      if (!ended) replace(result, notice(error.message, "bad"));
    }
  }

  function show(found) {
    const all = live.now ? ` of ${whole(live.now.retained)}` : "";
    summary.textContent = found.complete ? `${whole(found.read)} retained messages${prefix ? " here" : ""}` :
      `The first ${whole(found.read)}${all} retained messages; open a level to see the others`;
    const rows = found.levels.map((one) => ({ ...one, topic: prefix ? `${prefix}/${one.name}` : one.name }));
    if (found.own !== null) rows.unshift({ name: ".", topic: prefix, topics: 1, bytes: found.own, own: found.own });
    const most = Math.max(1, ...rows.map((one) => one.bytes));
    replace(result, table("Levels of topics", [
      { label: "Level", wide: true, cell: (row) => (row.topics > 1 || row.own === null ? h("a", { href: link(row.topic) }, name(row.name || "(empty)"), "/") : name(row.name === "." ? `${prefix} (itself)` : row.name || "(empty)")) },
      { label: "Messages", number: true, cell: (row) => whole(row.topics) },
      { label: "Size", number: true, cell: (row) => bytes(row.bytes) },
      { label: "Share", cell: (row) => h("meter", { min: 0, max: most, value: row.bytes, "aria-label": `${bytes(row.bytes)} of the largest ${bytes(most)}` }) },
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
  return () => { ended = true; };
}
