// Messages that the broker dropped and connections that it refused, by reason.

import { h, replace, short, table, title, whole } from "./dom.js";
import { follow, live, rate } from "./live.js";

const DROPS = {
  queue_messages: "The session's queue was full (max_queued_messages).", queue_bytes: "The session's queue was full (max_queued_bytes).",
  qos0_blocked: "QoS 0, and the client did not read.", output_bytes: "The client's output was full (max_output_bytes).",
  packet_size: "The message was larger than the client accepts.", expired: "The message expired before it was sent.",
  acl_read: "A rule does not let the client read the topic.", acl_write: "A rule does not let the client write to the topic.",
  memory: "The broker was at its memory_limit.", payload_size: "The payload was larger than message_size_limit.",
  quota: "A limit of the session was reached.", session_ended: "The session ended with messages in its queue.",
  retained: "The message could not be retained.", transform: "A plugin dropped the message.", disk: "The store could not take the message.",
  replaced: "A newer message of the topic took its place (last_value).", loop: "The message had come from that bridge.",
  unreadable: "The message could not be read from the disk.", no_name: "A bridge has no name for the topic.",
};
const REFUSALS = {
  max_connections: "The listener had max_connections.", global_max_connections: "The broker had global_max_connections.",
  global_max_clients: "The broker had global_max_clients.", descriptors: "The process had no descriptor left.",
  memory: "The broker was at its memory_limit.", access: "The login was refused.", auth_timeout: "The login was not decided in time.",
  disk: "The store could not take the session.", evicted: "A newer connection took the place of one that had sent no CONNECT.",
};

function rows(prefix, texts) {
  return Object.entries(live.now).filter(([key]) => key.startsWith(prefix)).map(([key, value]) => {
    const reason = key.slice(prefix.length);
    return { reason, value, rate: rate(key) ?? 0, text: texts[reason] ?? "" };
  }).sort((one, other) => other.value - one.value);
}

function shown(caption, found, empty) {
  const happened = found.filter((one) => one.value);
  return [table(caption, [
    { label: "Reason", wide: true, cell: (row) => h("span", {}, h("code", {}, row.reason), h("span", { class: "detail block" }, row.text)) },
    { label: "Count", number: true, cell: (row) => whole(row.value) },
    { label: "A second", number: true, cell: (row) => h("span", { class: row.rate > 0 ? "bad" : "" }, short(Math.round(row.rate * 10) / 10)) },
  ], happened, empty), h("p", { class: "detail" }, `Not since the start: ${found.filter((one) => !one.value).map((one) => one.reason).join(", ") || "–"}.`)];
}

export function drops(main) {
  const dropped = h("section", { "aria-labelledby": "dropped" });
  const refused = h("section", { "aria-labelledby": "refused" });
  main.append(title("Drops", h("p", { class: "facts" }, "Since the start of the broker.")), dropped, refused);
  return follow(() => {
    if (!live.now) return;
    replace(dropped, h("h2", { id: "dropped" }, "Dropped messages"), shown("Dropped messages", rows("drops_", DROPS), "The broker has dropped no message."));
    replace(refused, h("h2", { id: "refused" }, "Refused connections"), shown("Refused connections", rows("refused_", REFUSALS), "The broker has refused no connection."));
  });
}
