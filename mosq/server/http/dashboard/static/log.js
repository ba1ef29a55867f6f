// The last lines of the log.

import { h, notice, replace, title, visible } from "./dom.js";
import { get } from "./api.js";

const EVERY_MS = 2000;
const KEPT = 1000;
const KINDS = { 1: "error", 2: "warning", 4: "notice", 8: "information", 16: "debug", 32: "subscribe", 64: "unsubscribe", 128: "internal", 256: "websockets" };

// [name, label, types]; each type of `log_type` has a bit
const LEVELS = [["", "All types", 511], ["error", "Errors", 1], ["warning", "Warnings and errors", 3], ["notice", "Notices, warnings, errors", 7],
  ["information", "Information and the types above", 15], ["subscribe", "Subscriptions", 96], ["debug", "Debug", 16 + 128 + 256]];

export function log(main, query) {
  const list = h("ol", { class: "log", tabindex: 0, "aria-label": "Lines, the newest first" });
  const status = h("p", { class: "facts", role: "status" });
  let last = 0;
  let timer = 0;
  let ended = false;
  let wanted = "";
  let types = LEVELS.find(([id]) => id === (query.get("level") ?? ""))?.[2] ?? 511;

  function matches(element) {
    element.hidden = (types !== 511 && !(Number(element.dataset.kind) & types)) || (wanted !== "" && !element.textContent.toLowerCase().includes(wanted));
  }

  function filter() {
    for (const one of list.children) matches(one);
    count();
  }

  function count() {
    const n = [...list.children].filter((one) => !one.hidden).length;
    status.textContent = list.children.length ? `${n === list.children.length ? "" : `${n} of `}${list.children.length} lines` : "There are no lines yet.";
  }

  async function load() {
    try {
      const { lines } = await get("log", { after: last });
      if (ended) return;
      for (const [number, seconds, kind, text] of lines) {
        last = Math.max(last, number);
        const shown = KINDS[kind] ?? "other";
        const element = h("li", { class: `is-${shown}`, "data-kind": kind }, h("time", {}, new Date(seconds * 1000).toLocaleString("sv-SE")), h("span", { class: "kind" }, shown), h("bdi", {}, visible(text)));
        matches(element);
        list.prepend(element);
      }
      while (list.children.length > KEPT) list.lastChild.remove();
      count();
    } catch (error) {
      if (!ended) status.textContent = error.message;
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  main.append(title("Log", status), h("div", { class: "row fields" }, h("label", { class: "grow" }, h("span", { class: "label" }, "Filter"), h("input", {
    type: "search", "data-search": true, placeholder: "part of a line", spellcheck: "false", autocomplete: "off",
    oninput: (event) => { wanted = event.target.value.toLowerCase(); filter(); },
  })), h("label", {}, h("span", { class: "label" }, "Type"), h("select", { onchange: (event) => { types = Number(event.target.value); filter(); } },
    LEVELS.map(([, label, bits]) => h("option", { value: bits, selected: bits === types }, label))))), list);
  load();
  return () => { ended = true; clearTimeout(timer); };
}
