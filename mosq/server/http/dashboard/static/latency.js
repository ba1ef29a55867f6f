// Histograms of what the broker measures with observe_messages: waits of messages, turns, matches, batches, handshakes.

import { h, notice, replace, svg, table, title, whole } from "./dom.js";
import { get } from "./api.js";
import { atMost, mean, quantile, seconds, since } from "./durations.js";

const EVERY_MS = 5000;
const MINUTE_MS = 60_000;
const HEIGHT = 130;
const LEFT = 8;
const BOTTOM = 22;
const TOP = 14;
const TICK = 48;                // least distance of two labels of the axis
const MARK = 30;                // width of the label of a percentile
const SHOWN = [
  ["flush_qos0", "Delivery at QoS 0", "From the arrival of a message until it is sent to a subscriber; queue and socket are in it."],
  ["flush_qos1", "Delivery at QoS 1", "The same at QoS 1; the store is in it."],
  ["flush_qos2", "Delivery at QoS 2", "The same at QoS 2."],
  ["match", "Match", "Look-up of the subscribers of one topic."],
  ["turn", "Turn of the loop", "Work between two waits for events. All clients wait that long."],
  ["commit", "Commit of the store", "From the first record of a batch until the batch is on disk. Acknowledgements wait for it."],
  ["handshake", "TLS handshake", "From a client's first bytes until its handshake is complete."],
];
const QUANTILES = [["p50", 0.5], ["p90", 0.9], ["p99", 0.99]];

/** Draw the buckets on a logarithmic axis of time. */
function plot(one, untilS, width, label) {
  const from = Math.max(0, one.first - 2);
  const end = Math.min(untilS.length + 1, one.first + one.numbers.length + 2);       // the last bucket has no end
  const room = (width - 2 * LEFT) / (end - from);
  const most = Math.max(...one.numbers);
  const y = (number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - number / most);
  const bucket = (time) => (time === Infinity ? untilS.length : untilS.findIndex((until) => until >= time * 0.9999));
  const place = (time) => LEFT + room * (bucket(time) + 1 - from);
  let before = -TICK;
  const parts = [svg("line", { class: "grid", x1: LEFT, x2: width - LEFT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM })];
  for (let exponent = -8; exponent <= 3; exponent += 1) {
    const time = 10 ** exponent;
    const x = place(time);
    if (time < (untilS[from - 1] ?? 0) || time > (untilS[end - 1] ?? untilS.at(-1)) || x < 24 || x > width - 24 || x < before + TICK) continue;
    before = x;
    parts.push(svg("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), svg("text", { class: "tick middle", x, y: HEIGHT - 6 }, seconds(time)));
  }
  one.numbers.forEach((number, i) => {
    if (!number) return;
    const top = Math.min(y(number), HEIGHT - BOTTOM - 1);       // one message is visible beside a million
    parts.push(svg("rect", { class: "bar", x: LEFT + room * (one.first + i - from), y: top, width: Math.max(1, room - 1), height: HEIGHT - BOTTOM - top },
      svg("title", {}, `${untilS[one.first + i] ? `${seconds(untilS[one.first + i - 1] ?? 0)} to ${seconds(untilS[one.first + i])}` : atMost(Infinity, untilS)}: ${whole(number)}`)));
  });
  parts.push(...marks([QUANTILES[0], QUANTILES[2]].map(([name, part]) => [name, place(quantile(one, part, untilS))]), width));
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label }, parts);
}

/** Return the lines of two percentiles with their labels: the first one's on the left, the other's on the right. */
function marks([[low, x], [high, y]], width) {
  const line = (at) => svg("line", { class: "mark", x1: at, x2: at, y1: TOP - 2, y2: HEIGHT - BOTTOM });
  const label = (at, isLeft, name) => svg("text", { class: `tick ${isLeft ? "end" : ""}`, x: at + (isLeft ? -4 : 4), y: TOP - 3 }, name);
  const isLeft = x > MARK;
  const isRight = y < width - MARK;
  if (y - x < MARK && !(isLeft && isRight)) return [line(x), line(y), isLeft ? label(x, true, `${low}, ${high}`) : label(y, false, `${low}, ${high}`)];
  return [line(x), line(y), label(x, isLeft, low), label(y, !isRight, high)];
}

function off() {
  return h("div", { class: "notice" }, h("p", {}, h("strong", {}, "The broker measures no times, because "), h("code", {}, "observe_messages"), h("strong", {}, " is 0.")),
    h("p", {}, "Write ", h("code", {}, "observe_messages 64"), " into the configuration and reload it: one message in 64 is measured then. ",
      h("a", { href: "#/config" }, "Configuration")));
}

export function latency(main) {
  const body = h("div", {}, notice("Reading the histograms."));
  const summary = h("p", { class: "facts", role: "status" });
  const past = [];                // [time, answer], at most a minute old but for the first
  let ended = false;
  let timer = 0;
  let isRecent = false;

  function base(now) {
    while (past.length > 1 && past[1][0] <= now - MINUTE_MS) past.shift();
    return past[0]?.[1].histograms ?? {};
  }

  function show(found) {
    const now = performance.now();
    const before = base(now);
    if (!past.length || past.at(-1)[1] !== found) past.push([now, found]);
    if (!found.period) { summary.textContent = ""; replace(body, off()); return; }
    const all = SHOWN.map(([key, heading, text]) => ({ key, heading, text, one: found.histograms[key] && (isRecent ? since(found.histograms[key], before[key]) : found.histograms[key]) }))
      .filter((row) => row.one);
    const rows = all.filter((row) => row.one.count);
    summary.textContent = `One message in ${whole(found.period)} is measured; turns, batches and handshakes all are`;
    const width = Math.max(260, Math.min(620, body.clientWidth < 560 ? body.clientWidth - 34 : (body.clientWidth - 48) / 2 - 18));
    replace(body, h("div", { class: "charts" }, rows.map((row) => {
      const values = QUANTILES.map(([name, part]) => [name, atMost(quantile(row.one, part, found.untilS), found.untilS)]);
      return h("figure", { class: "card chart" }, h("figcaption", {}, h("h2", {}, row.heading),
        h("div", { class: "legend" }, values.map(([name, text]) => h("span", {}, `${name} `, h("b", {}, text))))),
      h("p", { class: "detail" }, row.text), plot(row.one, found.untilS, width, `${row.heading}: ${values.map((one) => one.join(" ")).join(", ")}`));
    })), table("Durations", [
      { label: "Time", wide: true, cell: (row) => row.heading }, { label: "Measured", number: true, cell: (row) => whole(row.one.count) },
      { label: "Mean", number: true, cell: (row) => mean(row.one, found.untilS, row.key.startsWith("flush_")) },
      ...QUANTILES.map(([name, part]) => ({ label: name, number: true, cell: (row) => atMost(quantile(row.one, part, found.untilS), found.untilS) })),
      { label: "Longest", number: true, cell: (row) => atMost(quantile(row.one, 1, found.untilS), found.untilS) },
    ], rows, isRecent ? "Nothing was measured since this view is open." : "Nothing was measured yet."),
    h("p", { class: "detail" }, `Percentiles are the upper ends of buckets, at most a quarter too long; the last bucket has no end. A delivery is measured for 16 s at most. No durations: ${all.filter((row) => !row.one.count).map((row) => row.heading).join(", ") || "–"}.`));
  }

  async function load() {
    try {
      const found = await get("latency");
      if (!ended) show(found);
    } catch (error) {
      if (!ended) replace(body, notice(error.message, "bad"));
    }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  }

  const choice = h("select", { onchange: (event) => { isRecent = event.target.value === "minute"; if (past.length) show(past.at(-1)[1]); } },
    h("option", { value: "start" }, "Since the start of the broker"), h("option", { value: "minute" }, "Last minute, while this view is open"));
  main.append(title("Latency", summary), h("div", { class: "row fields" }, h("label", {}, h("span", { class: "label" }, "Shown"), choice)), body);
  load();
  return () => { ended = true; clearTimeout(timer); };
}
