// Which filters match a topic, and what the look-up costs.

import { h, name, notice, replace, table, title, whole } from "./dom.js";
import { get } from "./api.js";

function path(row) {
  if (row.path === "exact") return `exact${row.letter === null || row.letter === undefined ? "" : `, letter ${row.letter}`}, ${row.links} links`;
  if (row.path === "tree") return h("span", {}, `tree, ${row.nodes === 1 ? "1 node" : `${row.nodes} nodes`}: `, name((row.edges ?? []).join(" / ")));
  return name(row.path);
}

/** A stream is a group of one member whose name begins with a slash. */
function group(one) {
  return one.strategy === "stream" ? ["stream ", name(one.name.replace(/^\//, ""))] : [name(one.name), ` (${one.strategy.replaceAll("_", " ")}, ${one.members} members)`];
}

function costs(cost) {
  const labels = { hashes: "Hashes", bytes_hashed: "Bytes hashed", links: "Links of hash chains", nodes: "Nodes of the tree", scanned: "Children scanned", bytes_compared: "Bytes compared", filters_compared: "Filters tried" };
  return Object.entries(cost).filter(([, value]) => typeof value === "number").map(([key, value]) => h("div", {}, h("dt", {}, labels[key] ?? key.replaceAll("_", " ")), h("dd", {}, whole(value))));
}

export function explain(main, query) {
  const result = h("section", { "aria-label": "Answer", "aria-live": "polite" });
  const topic = query.get("topic") ?? "";

  async function load() {
    try {
      const found = await get("explain", { topic });
      const { totals } = found;
      replace(result, table("Filters", [
        { label: "Filter", wide: true, cell: (row) => name(row.filter) }, { label: "Subscribers", number: true, cell: (row) => whole(row.subscribers) },
        { label: "Shared groups", cell: (row) => (row.groups.length ? row.groups.map((one, i) => [i ? ", " : null, ...group(one)]).flat() : "–") },
        { label: "Found by", cell: path },
      ].map((one) => ({ ...one, cell: (row) => { const shown = one.cell(row); return Array.isArray(shown) ? h("span", {}, shown) : shown; } })), found.filters, "No filter matches this topic."),
      found.truncated ? notice(`${whole(totals.filters - found.filters.length)} more filters did not fit into the answer.`) : null,
      h("h2", {}, "Cost of the look-up"), h("dl", { class: "card properties" }, h("div", {}, h("dt", {}, "Index"), h("dd", {}, name(found.index))), costs(found.cost)));
    } catch (error) {
      replace(result, notice(error.message, "bad"));
    }
  }

  main.append(title("Explain", h("p", { class: "facts" }, "Which filters match a topic, and how the index finds them.")), h("form", {
    class: "row fields", onsubmit: (event) => {
      event.preventDefault();
      const next = `#/explain?${new URLSearchParams({ topic: event.target.elements.topic.value })}`;
      if (next === location.hash) load();
      else location.hash = next;
    },
  }, h("label", { class: "grow" }, h("span", { class: "label" }, "Topic"), h("input", {
    name: "topic", "data-search": true, required: true, value: topic, placeholder: "site/7/temperature", spellcheck: "false", autocomplete: "off", autocapitalize: "none",
  })), h("button", { type: "submit" }, "Explain")), result);
  if (topic) load();
}
