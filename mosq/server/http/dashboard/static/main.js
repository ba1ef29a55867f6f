// The frame of the page: views by the part of the URL behind `#/`, the state of the feed, and the keyboard.

import { h, notice, replace, title, visible } from "./dom.js";
import { openSession, session } from "./api.js";
import { connect, follow, live } from "./live.js";
import { overview } from "./overview.js";

// A view fills an element, and returns a function that ends it. Each is in the module of its name, but for `client`. All but the first one are
// loaded when they are opened.
const MODULES = { client: "clients" };
const FIRST = "overview";
const TRIES = 30;
const AGAIN_MS = 1000;
// the links of the page: [name of the view, its label, its key]
const LINKS = [...document.querySelectorAll("#nav a")].map((link) => [link.hash.slice(2), link.textContent, link.title.at(-2)]);
const STATES = { connecting: "Connecting", open: "Live", lost: "No connection to the broker", refused: "You may not read this any more" };
const main = document.getElementById("main");
let end = () => {};
let turn = 0;

function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return [path === "client" || LINKS.some(([id]) => id === path) ? path : FIRST, query];
}

/** Return a view. A browser may remember a module that it did not get, so each attempt has another address. */
async function load(path, isWanted) {
  for (let n = 0; ; n += 1) {
    try {
      return (await import(`./${MODULES[path] ?? path}.js${n ? `?${n}` : ""}`))[path];
    } catch (error) {
      if (n >= TRIES || !isWanted()) throw error;
      replace(main, title(document.title.split(" – ")[0]), notice("The broker does not answer. The page tries again.", "bad"));
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  }
}

async function route() {
  const [path, query] = place();
  const shown = path === "client" ? "clients" : path;
  const mine = turn += 1;
  end();
  end = () => {};
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.hash === `#/${shown}`) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${LINKS.find(([id]) => id === shown)[1]} – mosq dashboard`;
  try {
    const view = path === FIRST ? overview : await load(path, () => mine === turn);
    if (mine !== turn) return;
    main.className = `view-${path}`;
    end = view(replace(main), new URLSearchParams(query)) ?? (() => {});
  } catch (error) {
    if (mine === turn) replace(main, title("Error"), notice(`This view has an error: ${error.message}`, "bad"));
  }
}

function showState() {
  document.getElementById("state").className = `state ${live.state}`;
  const text = document.getElementById("state-text");
  if (text.textContent !== STATES[live.state]) text.textContent = STATES[live.state];
}

function help() {
  const dialog = document.getElementById("help");
  const keys = [...LINKS.map(([, label, key]) => [`g ${key}`, label]), ["/", "Search or filter of the view"],
    ["?", "This list"], ["Esc", "Close a dialog, leave a field"]];
  replace(dialog, h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", { class: "keys" }, keys.flatMap(([key, what]) => [h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, what)])),
    h("div", { class: "row end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}

let afterG = 0;

function key(event) {
  const field = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && field) { field.blur(); return; }
  if (field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (performance.now() - afterG < 1500) {
    afterG = -1e9;
    const view = LINKS.find(([, , letter]) => letter === event.key);
    if (view) { location.hash = `#/${view[0]}`; main.focus({ preventScroll: true }); event.preventDefault(); return; }
  }
  if (event.key === "g") afterG = performance.now();
  else if (event.key === "?") { help(); event.preventDefault(); }
  else if (event.key === "/") {
    const search = main.querySelector("[data-search]");
    if (search) { search.focus(); event.preventDefault(); }
  }
}

function frame() {
  document.getElementById("help-button").addEventListener("click", help);
  document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  addEventListener("hashchange", () => { route(); scrollTo(0, 0); });
  addEventListener("keydown", key);
  follow(showState);
}

async function begin() {
  frame();
  connect();
  const opened = openSession();
  if (place()[0] === FIRST) route();      // it needs nothing of the session, so it is drawn before the broker has answered
  try {
    await opened;
  } catch (error) {
    turn += 1;
    end();
    replace(main, title("mosq dashboard"), notice(error.message, "bad"));
    return;
  }
  const user = session.user === null ? "no user name" : visible(session.user).slice(0, 60);
  replace(document.getElementById("user"), h("bdi", {}, user), h("span", { class: "badge" }, session.mayChange ? "may change" : "read only"));
  if (place()[0] !== FIRST) route();
}

afterG = -1e9;
begin();
