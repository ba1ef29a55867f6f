// Listeners, bridges, streams, the store, memory by its use, and the match cache.

import { bytes, duration, h, name, notice, replace, short, table, title, whole } from "./dom.js";
import { get } from "./api.js";
import { live } from "./live.js";

const EVERY_MS = 5000;
const GOOD = { connected: "good", ok: "good", waiting: "bad", full: "bad", error: "bad" };

function store(found) {
  if (!found.store) return notice(found.withoutStore ? `The broker runs without its store: ${found.withoutStore}` : "The broker keeps nothing on disk (persistence false).", found.withoutStore ? "bad" : "");
  const one = found.store;
  const facts = [["State", h("span", { class: `badge ${GOOD[one.state] ?? ""}` }, one.state)], ["Live", bytes(one.live_bytes)], ["On disk", bytes(one.total_bytes)],
    ["Segments", whole(one.segments)], ["Waiting", bytes(one.waiting_bytes)], ["Commits", whole(one.commits)], ["Mean commit", one.commit_us ? `${whole(one.commit_us)} µs` : "–"],
    ["Written", `${whole(one.messages_written)} messages`], ["Not written", `${whole(one.messages_elided)} messages`], ["Errors", whole(one.errors)]];
  return properties(facts);
}

function streams(found) {
  return table("Streams", [
    { label: "Stream", wide: true, cell: (row) => h("span", {}, name(row.name), row.line ? h("span", { class: "detail block" }, name(row.line)) : null) },
    { label: "On disk", number: true, cell: (row) => bytes(row.disk_bytes ?? 0) }, { label: "Records", number: true, cell: (row) => whole(row.records ?? 0) },
    { label: "Waiting", number: true, cell: (row) => bytes(row.waiting_bytes ?? 0) },
    { label: "Removed by retention", number: true, cell: (row) => h("span", {}, whole(row.retired_records ?? 0),
      row.retired_unread ? h("span", { class: "bad block" }, `${whole(row.retired_unread)} unread`) : null) },
    { label: "Lost", number: true, cell: (row) => h("span", { class: row.lost ? "bad" : "" }, whole(row.lost ?? 0)) },
    { label: "Errors", number: true, cell: (row) => h("span", { class: row.errors ? "bad" : "" }, whole(row.errors ?? 0)) },
  ], found, "There are no streams.");
}

function memory() {
  const now = live.now;
  if (!now) return notice("Waiting for the first figures.");
  const lookups = now.index_cache_hits + now.index_cache_misses;
  return properties([["Process, resident", bytes(now.process_resident_bytes)], ["Messages", bytes(now.store_bytes)], ["Index", bytes(now.index_bytes)], ["Retained topics", bytes(now.retained_tree_bytes)],
    ["Buffers", bytes(now.buffers_used_bytes)], ["Idle buffers", bytes(now.buffers_idle_bytes)], ["Connections without a login", bytes(now.newcomers_bytes)],
    ["Counted", bytes(now.heap_bytes)], ["Most counted", bytes(now.heap_bytes_max)],
    ["Match cache", lookups ? `${Math.round(100 * now.index_cache_hits / lookups)} % of ${short(lookups)} look-ups` : "–"]]);
}

function properties(facts) {
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
      ], found.bridges, "There are no bridges."), h("h2", {}, "Streams"), streams(found.streams), h("h2", {}, "Store"), store(found), h("h2", {}, "Memory"), memory());
    } catch (error) {
      if (!ended) replace(body, notice(error.message, "bad"));
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  main.append(title("System"), body);
  load();
  return () => { ended = true; clearTimeout(timer); };
}
