// The state of the broker at a glance.

import { bytes, duration, h, perSecond, replace, short, title, whole } from "./dom.js";
import { get, session } from "./api.js";
import { Chart } from "./charts.js";
import { follow, live, rate } from "./live.js";

const EVERY_MS = 5000;

function tile(label, value, detail, link, isBad = false) {
  const inner = [h("span", { class: "label" }, label), h("strong", {}, value), h("span", { class: "detail" }, detail)];
  return link ? h("a", { class: `card tile ${isBad ? "bad" : ""}`, href: link }, inner) : h("div", { class: "card tile" }, inner);
}

function rateOf(field) {
  const value = rate(field);
  return value === null ? "–" : perSecond(value);
}

/** Return the part of a core that the process uses. */
function processor() {
  const used = rate("process_cpu_us");
  if (used === null) return "–";
  return `${used < 99_500 ? (used / 10_000).toFixed(1) : Math.round(used / 10_000)} %`;
}

function tiles(delivery) {
  const now = live.now;
  const dropped = rate("publish_dropped") ?? 0;
  const refused = Object.keys(now).filter((key) => key.startsWith("refused_"));
  const refusals = refused.reduce((sum, key) => sum + now[key], 0);
  const refusing = refused.reduce((sum, key) => sum + (rate(key) ?? 0), 0);
  return [
    tile("Clients", whole(now.clients_connected), `of ${whole(now.clients_total)} sessions; at most ${whole(now.clients_max)} at a time`, "#/clients"),
    tile("Received", rateOf("publish_in"), `${whole(now.publish_in)} messages`),
    tile("Sent", rateOf("publish_out"), `${whole(now.publish_out)} messages`),
    tile("Dropped", rateOf("publish_dropped"), `${whole(now.publish_dropped)} messages`, "#/drops", dropped > 0),
    tile("Refused", perSecond(refusing), `${whole(refusals)} connections`, "#/drops", refusing > 0),
    tile("Stored", short(now.store_messages), `messages, ${bytes(now.store_bytes)}: queued and retained`, "#/clients?sort=queued"),
    tile("Delivery, p99", delivery.value, delivery.detail, "#/latency"),
    tile("Unsent", bytes(now.unsent_bytes), `${whole(now.unsent_packets)} packets`, "#/clients?sort=unsent"),
    tile("Retained", short(now.retained - now.retained_system), `messages, and ${whole(now.retained_system)} of $SYS`, "#/topics"),
    tile("Subscriptions", short(now.subscriptions), `${whole(now.filters)} filters, ${whole(now.shared_subscriptions)} shared`),
    tile("Memory", bytes(now.heap_bytes), "messages, buffers, index"),
    tile("Processor", processor(), `of a core; ${bytes(now.process_resident_bytes)} resident`, "#/latency"),
  ];
}

export function overview(main) {
  const facts = h("p", { class: "facts" });
  const grid = h("div", { class: "tiles", "aria-label": "Figures", role: "group" }, h("p", { class: "notice" }, "Waiting for the first figures."));
  const charts = [
    new Chart("Messages a second", [{ field: "publish_in", label: "received", rate: true }, { field: "publish_out", label: "sent", rate: true }], short),
    new Chart("Payload a second", [{ field: "publish_bytes_in", label: "received", rate: true }, { field: "publish_bytes_out", label: "sent", rate: true }], bytes, true),
    new Chart("Connected clients", [{ field: "clients_connected", label: "clients" }], short),
    new Chart("Stored messages", [{ field: "store_messages", label: "messages" }], short),
    new Chart("Dropped a second", [{ field: "publish_dropped", label: "messages", rate: true }], short),
    new Chart("Memory", [{ field: "heap_bytes", label: "heap" }], bytes, true),
  ];
  let delivery = { value: "–", detail: "from arrival to sending" };
  let before = null;
  let timer = 0;
  let ended = false;

  /** Read the histograms, after the figures are drawn: the first view does not wait for them. */
  async function measure() {
    try {
      const [{ atMost, quantile, since, together }, found] = await Promise.all([import("./durations.js"), get("latency")]);
      const parts = ["flush_qos0", "flush_qos1", "flush_qos2"].map((key) => found.histograms[key] && since(found.histograms[key], before?.[key]));
      const all = together(parts);
      delivery = found.period ? { value: atMost(quantile(all, 0.99, found.untilS), found.untilS), detail: all.count ? `${whole(all.count)} measured${found.period > 1 ? `, one in ${whole(found.period)}` : ""}` : "nothing was measured" } :
        { value: "off", detail: "observe_messages is 0" };
      before = found.histograms;
    } catch { /* the tile keeps what it shows */ }
    if (!ended) timer = setTimeout(measure, EVERY_MS);
  }

  main.append(title("Overview", facts), grid, h("div", { class: "charts" }, charts.map((one) => one.element)));
  const stop = follow(() => {
    if (!live.now || live.state !== "open") return;
    if (!timer) { timer = -1; measure(); }
    if (session.at) replace(facts, `mosq ${session.version}, running for ${duration(session.uptime + Math.floor((Date.now() - session.at) / 1000))}`);
    // a tile with the focus stays: its text changes in place
    const made = tiles(delivery);
    if (grid.children.length === made.length) made.forEach((one, i) => { grid.children[i].className = one.className; replace(grid.children[i], ...one.childNodes); });
    else replace(grid, made);
    charts.forEach((one) => one.draw());
  });
  return () => { ended = true; clearTimeout(timer); stop(); charts.forEach((one) => one.end()); };
}
