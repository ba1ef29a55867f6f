// Small line charts in SVG, of the last minute until the page knows more, and of at most five minutes. Colours come from the style sheet, so they follow light and dark.

import { h, svg, replace } from "./dom.js";
import { live } from "./live.js";

const SPANS_MS = [60_000, 120_000, 300_000];
const TICKS_S = { 60_000: [60, 45, 30, 15], 120_000: [120, 90, 60, 30], 300_000: [300, 240, 180, 120, 60] };
const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 20;
const GAP_MS = 3500;            // longer pauses interrupt the line

/** Return the smallest round number from the value on. */
function round(value, isBytes) {
  if (value <= 0) return 1;
  const base = isBytes ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
  const rest = value / base;
  const size = 10 ** Math.floor(Math.log10(rest));
  return base * size * [1, 2, 4, 6, 8, 10].find((step) => rest <= size * step + 1e-9);
}

/** Return the shortest span that holds all that is known. */
function span(now) {
  const known = live.rows.length ? now - live.rows[0][0] : 0;
  return SPANS_MS.find((one) => known <= one) ?? SPANS_MS.at(-1);
}

function ago(seconds) {
  return seconds % 60 ? `${seconds} s` : `${seconds / 60} min`;
}

/** Return [time, value] of a statistic; of a counter, the change for each second. */
function points(field, isRate) {
  const place = live.fields.indexOf(field) + 1;
  if (!place) return [];
  if (!isRate) return live.rows.map((row) => [row[0], row[place]]);
  const found = [];
  for (let i = 1; i < live.rows.length; i += 1) {
    const ms = live.rows[i][0] - live.rows[i - 1][0];
    if (ms > 0) found.push([live.rows[i][0], Math.max(0, (live.rows[i][place] - live.rows[i - 1][place]) * 1000 / ms)]);
  }
  return found;
}

export class Chart {
  /** `series`: {field, label, rate}. `show` writes a value. */
  constructor(heading, series, show, isBytes = false) {
    this.series = series;
    this.show = show;
    this.isBytes = isBytes;
    this.width = 0;
    this.at = null;             // x of the pointer
    this.legend = h("div", { class: "legend" });
    this.box = h("div", { class: "plot" });
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, h("h2", {}, heading), this.legend), this.box);
    this.values = series.map(() => h("b", {}, "–"));
    replace(this.legend, series.map((one, i) => h("span", {}, h("i", { class: `key s${i}`, "aria-hidden": "true" }), `${one.label} `, this.values[i])));
    this.box.addEventListener("pointermove", (event) => { this.at = event.offsetX; this.draw(); });
    this.box.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    this.observer = new ResizeObserver(() => { this.width = this.box.clientWidth; this.draw(); });
    this.observer.observe(this.box);
  }

  end() {
    this.observer.disconnect();
  }

  draw() {
    if (this.width < 80) return;
    const now = live.rows.length ? live.rows.at(-1)[0] : Date.now();
    const spanMs = span(now);
    const lines = this.series.map((one) => points(one.field, one.rate).filter((point) => point[0] >= now - spanMs));
    const top = round(Math.max(...lines.flat().map((point) => point[1]), 0), this.isBytes);
    const x = (time) => LEFT + (this.width - LEFT - RIGHT) * (1 - (now - time) / spanMs);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(top * part), y2: y(top * part) }));
      parts.push(svg("text", { class: "tick end", x: LEFT - 6, y: y(top * part) + 4 }, this.show(top * part)));
    }
    TICKS_S[spanMs].forEach((seconds, i) => {
      parts.push(svg("text", { class: `tick ${i ? "middle" : ""}`, x: x(now - seconds * 1000), y: HEIGHT - 5 }, ago(seconds)));
    });
    parts.push(svg("text", { class: "tick end", x: this.width - RIGHT, y: HEIGHT - 5 }, "now"));
    lines.forEach((line, i) => parts.push(...this.line(line, i, x, y)));
    const chosen = this.chosen(lines, x);
    if (chosen !== null) parts.push(svg("line", { class: "cursor", x1: x(chosen), x2: x(chosen), y1: TOP, y2: HEIGHT - BOTTOM }));
    this.values.forEach((element, i) => {
      const point = chosen === null ? lines[i].at(-1) : lines[i].findLast((one) => one[0] <= chosen);
      element.textContent = point ? this.show(point[1]) : "–";
    });
    const label = this.series.map((one, i) => `${one.label} ${this.values[i].textContent}`).join(", ");
    replace(this.box, svg("svg", { viewBox: `0 0 ${this.width} ${HEIGHT}`, width: this.width, height: HEIGHT, role: "img", "aria-label": label }, parts));
  }

  line(points_, i, x, y) {
    const pieces = [];
    let piece = [];
    for (const point of points_) {
      if (piece.length && point[0] - piece.at(-1)[0] > GAP_MS) { pieces.push(piece); piece = []; }
      piece.push(point);
    }
    if (piece.length) pieces.push(piece);
    return pieces.flatMap((one) => {
      const path = one.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      const [from, to] = [x(one[0][0]).toFixed(1), x(one.at(-1)[0]).toFixed(1)];
      const line = svg("polyline", { class: `line s${i}`, points: path });
      return i ? [line] : [svg("polygon", { class: "area s0", points: `${from},${y(0)} ${path} ${to},${y(0)}` }), line];
    });
  }

  chosen(lines, x) {
    const times = lines[0].map((point) => point[0]);
    if (this.at === null || !times.length) return null;
    return times.reduce((best, time) => (Math.abs(x(time) - this.at) < Math.abs(x(best) - this.at) ? time : best));
  }
}
