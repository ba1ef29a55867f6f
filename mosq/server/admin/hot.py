"""Composes lists of hot topics, hot clients and slow subscribers from the sketches and queues of the data plane. Knows
neither topics of the control API nor pages.

Equal questions within SHARED_S get one result, so many pages cost as much as one. The loop answers in slices, and
between two walks over the clients there is a pause of PAUSE times the duration of a walk: walks take at most
1 / (1 + PAUSE) of a core.
Any thread may ask; one asks the data plane at a time.
"""

from heapq import nlargest
from operator import itemgetter
from threading import Lock
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mosq.engine import Engine
    from mosq.records import HotName, HotNames, SlowClient

    Row = dict[str, Any]
    # of a name in both windows: text, length, count, error, bytes of count - error
    Sum = tuple[str, int, float, float, float]

ROWS_MAX = 100                  # of each list
SHARED_S = 2.0
PAUSE = 9
HINT = ("The option observe_messages samples messages; without it there are only the slow clients by queue. 64 is a "
        "good value.")
FIGURES = ("delay_seconds", "queue_age_seconds", "queue_length", "queue_bytes", "unsent_bytes")
# list -> the sum of all names
TOTALS = {"topics": "messages_per_second", "publishers": "published_per_second", "receivers": "deliveries_per_second"}


class Hot:
    """Answers of one broker."""

    def __init__(self, engine: "Callable[[], Engine]") -> None:
        self._engine = engine
        self._lock = Lock()
        self._found: Row = {}
        self._found_until_s = self._walk_after_s = 0.0
        self._queues: list[SlowClient] = []
        self._sums: Row = {}

    def read(self, limit: int = ROWS_MAX) -> "Row":
        """Return the lists, each with at most `limit` rows: docs/hot.md. Raises RuntimeError if the loop does not
        run."""
        with self._lock:
            if monotonic() >= self._found_until_s:
                self._found = self._read()
                self._found_until_s = monotonic() + SHARED_S
            found = self._found
        short = {name: value[:limit] for name, value in found.items() if isinstance(value, list)}
        return {**found, **short, "slow": slowest(found["slow"], limit)}

    def _read(self) -> "Row":
        engine = self._engine()
        if monotonic() >= self._walk_after_s:
            begun_s = monotonic()
            self._queues, self._sums = longest_queues(engine)
            now_s = monotonic()
            self._walk_after_s = now_s + PAUSE * (now_s - begun_s)
        delays = engine.hot("delays")
        found: Row = {"sampled": 0 if delays is None else delays.period,
                      "window_s": 0 if delays is None else round(delays.window_us / 1e6, 3)}
        if delays is None:
            found |= {"hint": HINT, "topics": [], "prefixes": [], "publishers": [], "receivers": []}
        else:
            for kind in TOTALS:
                names = engine.hot(kind)
                found[kind] = [] if names is None else list(rows(names, "topic" if kind == "topics" else "client_id"))
                found[TOTALS[kind]] = 0 if names is None else total(names)
                if kind == "topics":
                    found["prefixes"] = [] if names is None else prefixes(names)
        return {**found, **self._sums, "slow": slow(self._queues, delays)}


def sums(names: "HotNames") -> "Iterable[Sum]":
    """Yield the sum of both windows for each name. A name that is in one window only may have had the other's least
    count."""
    before: dict[Any, HotName] = {one.key: one for one in names.windows[1]}
    for one in names.windows[0]:
        other = before.pop(one.key, None)
        if other is None:
            yield _one(one, names.least[1])
        else:
            yield (one.text, one.length, one.total + other.total, one.error + other.error, one.bytes + other.bytes)
    for one in before.values():
        yield _one(one, names.least[0])


def _one(name: "HotName", missing: int) -> "Sum":
    return name.text, name.length, name.total + missing, name.error + missing, name.bytes


def rows(names: "HotNames", key: str) -> "Iterable[Row]":
    """Yield the names with most messages. A name whose figure may be more than half wrong is not hot, and is left
    out."""
    known = [one for one in sums(names) if one[3] <= one[2] / 2]
    for text, length, count, error, n_bytes in nlargest(ROWS_MAX, known, key=lambda one: one[2]):
        row: Row = {key: text, **_rates(names, count, error, n_bytes)}
        if length > len(text.encode()):
            row[f"{key}_bytes"] = length            # only its beginning is known
        yield row


def total(names: "HotNames") -> float:
    """Return the messages per second of all names, also of those that left the sketch."""
    return _short(sum(one.total for window in names.windows for one in window) * _each(names))


def _each(names: "HotNames") -> float:
    """Return the messages per second that a counted one stands for."""
    return names.period * 1e6 / max(names.window_us, 1)


def _rates(names: "HotNames", count: float, error: float, n_bytes: float) -> "Row":
    """Return the figures per second. The bytes of a message are the mean of the messages that surely had this
    name."""
    each = _each(names)
    size = n_bytes / (count - error) if count > error else 0.0
    return {"messages_per_second": _short(count * each), "bytes_per_second": _short(count * size * each),
            "error": _short(error * each)}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def prefixes(names: "HotNames") -> "list[Row]":
    """Return the sums by the first level, and by the first two levels, of the topics in the sketch. A topic that came
    in place of another has its count, so the sums of many cold topics are estimates; `error` is the part that may
    belong to other prefixes."""
    found: dict[str, list[float]] = {}
    for window in names.windows:
        for one in window:
            size = one.bytes / (one.total - one.error) if one.total > one.error else 0.0
            levels = one.text.split("/", 2)
            for prefix in dict.fromkeys(("/".join(levels[:1]), "/".join(levels[:2]))):
                total = found.setdefault(prefix, [0.0, 0.0, 0.0])
                total[0] += one.total
                total[1] += one.error
                total[2] += one.total * size
    each = _each(names)
    best = nlargest(ROWS_MAX, found.items(), key=lambda one: one[1][0])
    return [{"prefix": prefix, "levels": 1 + prefix.count("/"), "messages_per_second": _short(count * each),
             "bytes_per_second": _short(n_bytes * each), "error": _short(error * each)}
            for prefix, (count, error, n_bytes) in best]


# ---------------------------------------------------------------- slow subscribers

def _keys(one: "SlowClient") -> tuple[int, int, int, int]:
    return one.queued, one.queue_bytes, one.age_ms or 0, one.unsent_bytes


def longest_queues(engine: "Engine") -> "tuple[list[SlowClient], Row]":
    """Return the connected clients with the longest queues, most bytes, oldest messages and most unsent output:
    ROWS_MAX of each; and the sums of all sessions. The limits rise while the walk goes on, so that later slices have
    few rows."""
    found: list[SlowClient] = []
    queued = inflight = n_bytes = 0
    limits = (0, 0, 0, 0)
    position = 0
    while True:
        part = engine.slow(position, limits)
        position, queued, inflight, n_bytes = (
            part.cursor, queued + part.queued, inflight + part.inflight, n_bytes + part.queue_bytes)
        if part.clients:
            found, limits = best([*found, *part.clients])
        if position == 0:
            return found, {"queued": queued, "inflight": inflight, "queue_bytes": n_bytes}


def best(found: "list[SlowClient]") -> "tuple[list[SlowClient], tuple[int, int, int, int]]":
    """Return the rows that are among the ROWS_MAX largest of one key, and the limits of the keys."""
    kept: dict[int, SlowClient] = {}
    limits = []
    for place in range(4):
        most = nlargest(ROWS_MAX, ((_keys(one)[place], i) for i, one in enumerate(found) if _keys(one)[place]))
        kept |= {i: found[i] for _, i in most}
        limits.append(most[-1][0] if len(most) == ROWS_MAX else 0)
    return list(kept.values()), (limits[0], limits[1], limits[2], limits[3])


def slow(queues: "Iterable[SlowClient]", delays: "HotNames | None") -> "list[Row]":
    """Return the slow clients: those with long queues, and those with long delays."""
    found = {(one.client_id, one.length): _slow_row(one) for one in queues}
    for window in () if delays is None else delays.windows:
        for name in window:
            assert name.client is not None
            row = found.setdefault((name.text, name.length), _slow_row(name.client))
            row["delay_seconds"] = max(row["delay_seconds"] or 0.0, name.total / 1e6)
    return sorted(found.values(), key=_slowness, reverse=True)


def slowest(rows: "list[Row]", limit: int) -> "list[Row]":
    """Return at most `limit` rows: the largest of each figure in turn, so that no kind of slowness hides another. They
    are sorted by time (the longer of delay and age), then by queue, bytes and unsent output."""
    orders = [iter(sorted((row for row in rows if row[name]), key=itemgetter(name), reverse=True)) for name in FIGURES]
    taken: dict[int, Row] = {}
    while orders and len(taken) < limit:
        for order in list(orders):
            row = next((row for row in order if id(row) not in taken), None)
            if row is None:
                orders.remove(order)
            elif len(taken) < limit:
                taken[id(row)] = row
    return sorted(taken.values(), key=_slowness, reverse=True)


def _slow_row(one: "SlowClient") -> "Row":
    age_s = None if one.age_ms is None else one.age_ms / 1e3
    row: Row = {"client_id": one.client_id, "connected": one.connected, "delay_seconds": None,
                "queue_length": one.queued, "queue_bytes": one.queue_bytes, "queue_age_seconds": age_s,
                "unsent_bytes": one.unsent_bytes, "inflight": one.inflight}
    if one.length > len(one.client_id.encode()):
        row["client_id_bytes"] = one.length
    return row


def _slowness(row: "Row") -> tuple[float, int, int, int]:
    return (max(row["delay_seconds"] or 0.0, row["queue_age_seconds"] or 0.0), row["queue_length"], row["queue_bytes"],
            row["unsent_bytes"])
