// The frame of the page: views by the part of the URL behind `#/`, the state of the feed, and the keyboard.

import { h, notice, replace, title, visible } from "./dom.js";
import { openSession, session } from "./api.js";
import { connect, follow, live } from "./live.js";
import { overview } from "./overview.js";
import { client, clients } from "./clients.js";
import { topics } from "./topics.js";
import { tail } from "./tail.js";
import { explain } from "./explain.js";
import { drops } from "./drops.js";
import { system } from "./system.js";
import { log } from "./log.js";
import { config } from "./config.js";

// A view fills an element, and returns a function that ends it.
const VIEWS = [
  ["overview", "Overview", "o", overview], ["clients", "Clients", "c", clients], ["topics", "Topics", "t", topics],
  ["tail", "Live tail", "l", tail], ["explain", "Explain", "e", explain], ["drops", "Drops", "d", drops],
  ["system", "System", "s", system], ["log", "Log", "g", log], ["config", "Configuration", "f", config],
];
const OTHERS = { client };
const STATES = { connecting: "Connecting", open: "Live", lost: "No connection to the broker", refused: "You may not read this any more" };
const main = document.getElementById("main");
let end = () => {};

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const found = VIEWS.find(([id]) => id === path);
  const view = found?.[3] ?? OTHERS[path] ?? overview;
  const shown = found?.[0] ?? (path === "client" ? "clients" : "overview");
  end();
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.hash === `#/${shown}`) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS.find(([id]) => id === shown)[1]} – mosq dashboard`;
  main.className = `view-${path || "overview"}`;
  try {
    end = view(replace(main), new URLSearchParams(query)) ?? (() => {});
  } catch (error) {
    end = () => {};
    replace(main, title("Error"), notice(`This view has an error: ${error.message}`, "bad"));
  }
}

function showState() {
  document.getElementById("state").className = `state ${live.state}`;
  const text = document.getElementById("state-text");
  if (text.textContent !== STATES[live.state]) text.textContent = STATES[live.state];
}

function help() {
  const dialog = document.getElementById("help");
  const keys = [...VIEWS.map(([, label, key]) => [`g ${key}`, label]), ["/", "Search or filter of the view"],
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
    const view = VIEWS.find(([, , letter]) => letter === event.key);
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
  replace(document.getElementById("nav"), VIEWS.map(([id, label, letter]) => h("li", {},
    h("a", { href: `#/${id}`, title: `${label} (g ${letter})` }, label))));
  document.getElementById("help-button").addEventListener("click", help);
  document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  addEventListener("hashchange", () => { route(); scrollTo(0, 0); });
  addEventListener("keydown", key);
  follow(showState);
}

async function begin() {
  frame();
  connect();
  try {
    await openSession();
  } catch (error) {
    replace(main, title("mosq dashboard"), notice(error.message, "bad"));
    return;
  }
  const user = session.user === null ? "no user name" : visible(session.user).slice(0, 60);
  replace(document.getElementById("user"), h("bdi", {}, user), h("span", { class: "badge" }, session.mayChange ? "may change" : "read only"));
  route();
}

afterG = -1e9;
begin();
