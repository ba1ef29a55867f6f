// What is hot and who is slow: topics, publishers and receivers by their rates, from a sample; slow clients by their queues.

import { bytes, duration, h, name, notice, part, perSecond, replace, table, title, whole } from "./dom.js";
import { get } from "./api.js";
import { seconds } from "./durations.js";

const EVERY_MS = 3000;
const LIMIT = 20;

/** `all`: the messages a second of all names, or nothing. */
function rates(caption, what, cell, rows, all, empty) {
  return table(caption, [
    { label: what, wide: true, cell }, { label: "Messages", number: true, cell: (row) => h("span", { title: row.error ? `at most ${perSecond(row.error)} too high` : null }, perSecond(row.messages_per_second)) },
    { label: "Payload", number: true, cell: (row) => `${bytes(row.bytes_per_second)}/s` }, { label: "Share of all", cell: (row) => part(row.messages_per_second, all, `${perSecond(row.messages_per_second)} of ${perSecond(all)}`) },
  ], rows, empty);
}

function client(row) {
  return h("a", { href: `#/client?${new URLSearchParams({ id: row.client_id })}` }, name(row.client_id, 64));
}

function slow(rows) {
  return table("Slow clients", [
    { label: "Client", wide: true, cell: client },
    { label: "Longest delay", number: true, cell: (row) => (row.delay_seconds === null ? "–" : seconds(row.delay_seconds)) },
    { label: "Oldest queued", number: true, cell: (row) => (row.queue_age_seconds ? duration(Math.round(row.queue_age_seconds)) : "–") },
    { label: "Queued", number: true, cell: (row) => whole(row.queue_length) }, { label: "Queue", number: true, cell: (row) => bytes(row.queue_bytes) },
    { label: "Unsent", number: true, cell: (row) => bytes(row.unsent_bytes) }, { label: "Inflight", number: true, cell: (row) => whole(row.inflight) },
  ], rows, "No client is behind.");
}

function prefixes(rows, all) {
  const topic = (row) => h("a", { href: `#/topics?${new URLSearchParams({ prefix: row.prefix })}` }, name(row.prefix || "(empty)", 120), "/");
  return rates("Hot topic prefixes", "Topics below", topic, rows, all, "No messages were sampled.");
}

export function hot(main) {
  const body = h("div", {}, notice("Reading the sample."));
  const summary = h("p", { class: "facts", role: "status" });
  let ended = false;
  let timer = 0;

  function show(found) {
    summary.textContent = found.sampled ? `One message in ${whole(found.sampled)}, rates of the last ${whole(Math.round(found.window_s))} s` : "";
    if (main.contains(document.activeElement?.closest("td"))) return;      // a link with the focus stays
    const sampled = found.sampled ? [
      h("h2", {}, "Topic prefixes"), prefixes(found.prefixes, found.messages_per_second),
      h("h2", {}, "Topics"), rates("Hot topics", "Topic", (row) => name(row.topic, 160), found.topics, found.messages_per_second, "No messages were sampled."),
      h("h2", {}, "Publishers"), rates("Hot publishers", "Client", client, found.publishers, found.published_per_second, "No messages were sampled."),
      h("h2", {}, "Receivers"), rates("Hot receivers", "Client", client, found.receivers, found.deliveries_per_second, "No deliveries were sampled."),
    ] : [h("p", { class: "notice hint" }, found.hint || "The broker samples no messages.")];
    replace(body, h("h2", {}, "Slow clients"), slow(found.slow), sampled);
  }

  async function load() {
    try {
      const found = await get("hot", { limit: LIMIT });
      if (!ended) show(found);
    } catch (error) {
      if (!ended) replace(body, notice(error.message, "bad"));
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  main.append(title("Hot and slow", summary), body);
  load();
  return () => { ended = true; clearTimeout(timer); };
}
