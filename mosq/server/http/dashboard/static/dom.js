// Makes elements. Text is always a text node, never markup, so nothing that a client chooses can become part of the page.

const SVG = "http://www.w3.org/2000/svg";
// control characters, invisible ones, those that change the direction of the text around them, and those that are no characters
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]/gu;

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** Return the text with invisible characters as escapes. */
export function visible(text) {
  return String(text).replace(HIDDEN, (one) => {
    const code = one.codePointAt(0);
    return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** Return a name that a client chose, isolated from the text around it. */
export function name(text, most = 200) {
  const shown = visible(text);
  return h("bdi", { class: "name", title: shown.length > most ? shown.slice(0, 2000) : null },
    shown.length > most ? `${shown.slice(0, most)}…` : shown);
}

export function title(text, ...more) {
  return h("div", { class: "title" }, h("h1", {}, text), ...more);
}

export function notice(text, kind = "") {
  return h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, text);
}

/** Return a table. A column is {label, cell(row), number, wide}; on a phone each row becomes a card. */
export function table(caption, columns, rows, empty) {
  if (!rows.length) return notice(empty);
  return h("div", { class: "scroll" }, h("table", {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: one.number ? "number" : null }, one.label)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((one) => h("td", {
      class: [one.number && "number", one.wide && "wide"].filter(Boolean).join(" ") || null, "data-label": one.label,
    }, one.cell(row))))))));
}

/** Return a part of a whole as text. */
export function percent(value, all) {
  const found = all > 0 ? Math.min(100, 100 * value / all) : 0;
  return found > 0 && found < 1 ? "< 1\u00a0%" : `${Math.round(found)}\u00a0%`;
}

/** Return a part of a whole as a bar with its percentage. */
export function part(value, all, label) {
  return h("span", { class: "part", title: label }, h("meter", { min: 0, max: all > 0 ? all : 1, value: all > 0 ? Math.min(value, all) : 0, "aria-label": label }),
    percent(value, all));
}

let toastTimer = 0;

export function toast(text, isBad = false) {
  const box = document.getElementById("toast");
  replace(box, h("p", { class: isBad ? "bad" : "" }, text));
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => box.replaceChildren(), 6000);
}

/** Ask before a change; resolve to true or false. */
export function ask(question, detail, verb) {
  const dialog = document.getElementById("ask");
  return new Promise((resolve) => {
    const end = (value) => { dialog.close(); resolve(value); };
    replace(dialog, h("h2", { id: "ask-title" }, question), h("p", {}, detail),
      h("div", { class: "row end" }, h("button", { type: "button", onclick: () => end(false) }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: () => end(true) }, verb)));
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
    dialog.querySelector("button").focus();
  });
}

const UNITS = ["", "k", "M", "G", "T"];

/** Return a number in at most five characters. */
export function short(value) {
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 999.5 && unit < UNITS.length - 1) { size /= 1000; unit += 1; }
  const shown = unit === 0 && Number.isInteger(size) ? String(size) : size.toFixed(size < 9.95 ? 1 : 0);
  return `${value < 0 ? "−" : ""}${shown}${unit ? ` ${UNITS[unit]}` : ""}`;
}

/** Return a rate as text. */
export function perSecond(value) {
  return `${short(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`;
}

export function bytes(value) {
  let size = value;
  let unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (size >= 1023.5 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${unit && size < 9.95 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function whole(value) {
  return Number(value).toLocaleString("en-US");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).map(([size, unit], i) => {
    const n = i === 0 ? Math.floor(seconds / size) : Math.floor((seconds % parts[first][0]) / size);
    return n || i === 0 ? `${n} ${unit}` : "";
  }).filter(Boolean).join(" ");
}

/** Call the function after the last of many calls. */
export function settled(run, afterMs = 250) {
  let timer = 0;
  return (...values) => { clearTimeout(timer); timer = setTimeout(() => run(...values), afterMs); };
}
