// The live feed: one event of statistics each second, which all views share.

const KEPT = 300;

export const live = {
  state: "connecting",          // connecting, open, lost, refused
  now: null,                    // statistic -> value
  before: null,                 // the same of the event before
  seconds: 1,                   // between both
  fields: [],                   // statistics in the rows of the past, behind the time
  rows: [],                     // the past: [milliseconds, value, ...]
};
const listeners = new Set();
let source = null;
let names = [];
let retry = 0;

export function follow(run) {
  listeners.add(run);
  if (live.now) run();
  return () => listeners.delete(run);
}

/** Return the change of a counter for each second. */
export function rate(field) {
  if (!live.now || !live.before) return null;
  return Math.max(0, (live.now[field] - live.before[field]) / live.seconds);
}

function become(state) {
  live.state = state;
  for (const run of listeners) run();
}

function hello(event) {
  const first = JSON.parse(event.data);
  names = first.names;
  live.fields = first.past;
  live.rows = first.rows;
  live.now = live.before = null;
}

function stats(event) {
  const [time, ...values] = JSON.parse(event.data);
  live.before = live.now;
  live.now = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  live.now.time = time;
  live.seconds = live.before ? Math.max(0.2, (time - live.before.time) / 1000) : 1;
  const last = live.rows.at(-1);
  if (!last || last[0] < time) live.rows.push([time, ...live.fields.map((name) => live.now[name])]);
  if (live.rows.length > KEPT) live.rows.splice(0, live.rows.length - KEPT);
  become("open");
}

export function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("api/feed");
  source.addEventListener("hello", hello);
  source.addEventListener("stats", stats);
  source.addEventListener("lost", () => become("lost"));
  source.addEventListener("refused", () => { source.close(); become("refused"); });
  source.addEventListener("error", () => {
    become("lost");
    source.close();             // the browser does not try again after an error status, so this does
    retry = setTimeout(connect, 1500);
  });
}
