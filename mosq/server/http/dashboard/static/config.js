// The configuration in force: each value, and the file and line that it comes from.

import { ask, h, name, notice, replace, table, title, toast, whole } from "./dom.js";
import { change, get, session } from "./api.js";

export function config(main) {
  const result = h("section", { "aria-label": "Options" }, notice("Loading."));
  const status = h("p", { class: "facts", role: "status" });
  const chosen = { text: "", all: false };
  let rows = [];

  function show() {
    const found = rows.filter((row) => (chosen.all || !row.isDefault) && (!chosen.text || `${row.option} ${row.scope} ${row.value}`.toLowerCase().includes(chosen.text)));
    replace(result, table("Options", [
      { label: "Option", wide: true, cell: (row) => h("code", {}, row.option) }, { label: "Of", cell: (row) => name(row.scope, 60) },
      { label: "Value", cell: (row) => h("span", { class: "value" }, name(row.value, 300)) }, { label: "Comes from", cell: (row) => h("span", { class: "detail" }, name(row.source, 200)) },
    ], found, "No option matches."));
    status.textContent = `${whole(found.length)} of ${whole(rows.length)} options`;
  }

  async function load() {
    try {
      const found = await get("config");
      rows = found.rows.map(([option, scope, value, source, isDefault]) => ({ option, scope, value, source, isDefault }));
      show();
    } catch (error) {
      replace(result, notice(error.message, "bad"));
    }
  }

  async function reload() {
    if (!await ask("Reload the configuration?", "The broker reads its files again, as after SIGHUP. With an error in them the old configuration stays in force; the log has the reason.", "Reload")) return;
    try {
      await change("reload", {});
      toast("The broker reloads. The log has the outcome.");
      setTimeout(load, 2500);
    } catch (error) {
      toast(error.message, true);
    }
  }

  main.append(title("Configuration", status), h("div", { class: "row fields" },
    h("label", { class: "grow" }, h("span", { class: "label" }, "Filter"), h("input", {
      type: "search", "data-search": true, placeholder: "option, scope or value", spellcheck: "false", autocomplete: "off",
      oninput: (event) => { chosen.text = event.target.value.toLowerCase(); show(); },
    })),
    h("label", { class: "inline" }, h("input", { type: "checkbox", onchange: (event) => { chosen.all = event.target.checked; show(); } }), " Show defaults"),
    h("button", { type: "button", disabled: !session.mayChange, onclick: reload, title: session.mayChange ? null : "You have no right to change anything." }, "Reload")),
  result);
  load();
}
