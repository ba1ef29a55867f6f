// Listeners, bridges, streams and the store.

import { bytes, duration, h, name, notice, replace, table, title, whole } from "./dom.js";
import { get } from "./api.js";

const EVERY_MS = 5000;
const GOOD = { connected: "good", ok: "good", waiting: "bad", full: "bad", error: "bad" };

function store(found) {
  if (!found.store) return notice(found.withoutStore ? `The broker runs without its store: ${found.withoutStore}` : "The broker keeps nothing on disk (persistence false).", found.withoutStore ? "bad" : "");
  const one = found.store;
  const facts = [["State", h("span", { class: `badge ${GOOD[one.state] ?? ""}` }, one.state)], ["Live", bytes(one.live_bytes)], ["On disk", bytes(one.total_bytes)],
    ["Segments", whole(one.segments)], ["Waiting", bytes(one.waiting_bytes)], ["Commits", whole(one.commits)], ["Mean commit", one.commit_us ? `${whole(one.commit_us)} µs` : "–"],
    ["Written", `${whole(one.messages_written)} messages`], ["Not written", `${whole(one.messages_elided)} messages`], ["Errors", whole(one.errors)]];
  return h("dl", { class: "card properties" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

export function system(main) {
  const body = h("div", {}, notice("Loading."));
  let ended = false;
  let timer = 0;

  async function load() {
    try {
      const found = await get("system");
      if (ended) return;
      replace(body, h("h2", {}, "Listeners"), table("Listeners", [
        { label: "Listener", wide: true, cell: (row) => name(row.where) }, { label: "Protocol", cell: (row) => row.protocol },
        { label: "TLS", cell: (row) => (row.tls ? "yes" : "no") }, { label: "Without a user name", cell: (row) => (row.anonymous ? "allowed" : "refused") },
      ], found.listeners, "There are no listeners."), h("h2", {}, "Bridges"), table("Bridges", [
        { label: "Bridge", wide: true, cell: (row) => name(row.name) }, { label: "State", cell: (row) => h("span", { class: `badge ${GOOD[row.state] ?? ""}` }, row.state) },
        { label: "Address", cell: (row) => name(row.address) },
        { label: "Since", cell: (row) => (row.connectedFor !== null ? duration(row.connectedFor) : row.nextTryIn !== null ? `next attempt in ${duration(row.nextTryIn)}` : "–") },
        { label: "Queued", number: true, cell: (row) => (row.queued === null || row.queued === undefined ? "–" : whole(row.queued)) },
      ], found.bridges, "There are no bridges."), h("h2", {}, "Streams"), table("Streams", [
        { label: "Stream", cell: (row) => name(row.name) }, { label: "Declared as", wide: true, cell: (row) => name(row.line) },
      ], found.streams, "There are no streams."), h("h2", {}, "Store"), store(found));
    } catch (error) {
      if (!ended) replace(body, notice(error.message, "bad"));
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  main.append(title("System"), body);
  load();
  return () => { ended = true; clearTimeout(timer); };
}
