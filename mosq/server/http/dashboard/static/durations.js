// Histograms of the broker: quantiles, the change since an earlier reading, and durations as text.

/** Return a duration in seconds as text of at most seven characters. */
export function seconds(value) {
  if (value === null || Number.isNaN(value)) return "–";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (value >= size * 0.9995) return `${value / size < 9.95 ? (value / size).toFixed(1) : Math.round(value / size)} ${unit}`;
  }
  return `${Math.round(value * 1e9)} ns`;
}

/** Return the histogram of what came after an earlier reading; all of it without one, or if the broker has begun anew. */
export function since(now, before) {
  if (!before || before.count > now.count) return now;
  const numbers = now.numbers.map((number, i) => number - (before.numbers[i + now.first - before.first] ?? 0));
  return { count: now.count - before.count, sumS: now.sumS - before.sumS, first: now.first, numbers };
}

/** Return the sum of histograms. */
export function together(some) {
  const found = some.filter((one) => one?.count);
  const first = Math.min(...found.map((one) => one.first));
  const numbers = [];
  for (const one of found) one.numbers.forEach((number, i) => { numbers[i + one.first - first] = (numbers[i + one.first - first] ?? 0) + number; });
  return { count: found.reduce((sum, one) => sum + one.count, 0), first: found.length ? first : 0, numbers: Array.from(numbers, (one) => one ?? 0) };
}

/** Return a quantile as text. The last bucket has no end. */
export function atMost(value, untilS) {
  return value === Infinity ? `over ${seconds(untilS.at(-1))}` : seconds(value);
}

/** Return the mean as text. `isCut`: a duration in the last bucket may have been longer than the broker measured. */
export function mean(one, untilS, isCut) {
  const text = seconds(one.sumS / one.count);
  return isCut && one.first + one.numbers.length > untilS.length ? `over ${text}` : text;
}

/** Return the duration that a part of all durations does not exceed: the end of its bucket, so it is never too short;
 *  Infinity for the last bucket. */
export function quantile(one, part, untilS) {
  let left = Math.max(1, Math.ceil(one.count * part));
  if (!one.count) return null;
  for (let i = 0; i < one.numbers.length; i += 1) {
    left -= one.numbers[i];
    if (left <= 0) return untilS[one.first + i] ?? Infinity;
  }
  return untilS[one.first + one.numbers.length - 1] ?? Infinity;
}
