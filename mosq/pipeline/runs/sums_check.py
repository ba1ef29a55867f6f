"""Compare the sums of gold with the rows of bronze, of gold/telemetry with silver, and the counts of gold/devices."""

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import CONNECT, DISCONNECT, DROP, EXPIRY, MESSAGE, REFUSED, TAKE_OVER
from mosq.pipeline.rows import types
from mosq.pipeline.rows.declared import Event
from mosq.pipeline.rows.tables import CHURN, DEVICES, TELEMETRY, TIME
from mosq.pipeline.rows.telemetry import Telemetry
from mosq.pipeline.rows.work import Rule
from mosq.pipeline.runs.progress import BRONZE
from mosq.pipeline.runs.tableset import OF_FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.pipeline.runs.versions import Snapshot

FOLD_ROWS = 1 << 18
KINDS = {
    "traffic": (MESSAGE,),
    "latency": (MESSAGE,),
    "drops": (DROP,),
    "churn": (CONNECT, DISCONNECT, TAKE_OVER, EXPIRY),
}
SUMS = {"traffic": ("messages",), "latency": ("messages",), "drops": ("drops",), "churn": CHURN}
BY_STREAM = ("traffic", "latency")
KEYS = ["window", "node", "stream", "kind"]
LISTED = 1000
DAY_US = 86_400_000_000
EPOCH_US = datetime.date(1970, 1, 1).toordinal() * DAY_US
Key = tuple[int, str, str]
WHAT = (
    "{found:,} messages and connections, the last message is {last:,};"
    " bronze has {wanted:,}, the last is {wanted_last:,}"
)
Totals = dict[str, tuple[int, int]]


class Windows:
    """Count the records of bronze in each window, and compare."""

    def __init__(self, snapshot: "Snapshot", removed: list[dict[str, Any]], before: dict[str, Any]) -> None:
        self.snapshot, self.before = snapshot, before
        self.window_us = int(snapshot.setup["window_us"])
        self.counts: list[pa.Table] = []
        self.n = 0
        self.touched: set[int] = set()  # windows from which an erasure took rows
        for one in removed:
            if one["table"] == BRONZE and one["before"] is None and one["first_time"] is not None:
                first, last = (self._window(one[name]) for name in ("first_time", "last_time"))
                self.touched.update(range(first, last + 1, self.window_us))

    def _window(self, time: datetime.datetime) -> int:
        us = (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
        return us - us % self.window_us

    def take(self, rows: Any) -> None:
        """Take rows of bronze with node, stream, time and kind."""
        rows = rows.filter(pc.is_valid(rows["time"]))
        if not rows.num_rows:
            return
        us = rows["time"].cast(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)
        window = pa.array(us - us % self.window_us)
        table = pa.table({"window": window, "node": rows["node"], "stream": rows["stream"], "kind": rows["kind"]})
        grouped = table.group_by(KEYS, use_threads=False).aggregate([([], "count_all")])
        self.counts.append(grouped.select([*KEYS, "count_all"]))
        self.n += grouped.num_rows
        if self.n > FOLD_ROWS and len(self.counts) > 1:
            self.counts = [self._folded()]
            self.n = self.counts[0].num_rows // 2  # so that folding stays a small part of the work

    def _folded(self) -> pa.Table:
        if not self.counts:
            empty = [pa.array([], kind) for kind in (pa.int64(), pa.string(), pa.string(), pa.int8(), pa.int64())]
            return pa.table(dict(zip([*KEYS, "count_all"], empty, strict=True)))
        found = pa.concat_tables(self.counts).group_by(KEYS, use_threads=False).aggregate([("count_all", "sum")])
        return found.select([*KEYS, "count_all_sum"]).rename_columns([*KEYS, "count_all"])

    # ---- compare

    def compare(self, tables: dict[str, dict[str, int]], faults: list[dict[str, Any]], notes: list[str]) -> None:
        counts = self._folded()
        late = self._sums("late", ("rows",), by_stream=False)
        for name, kinds in KINDS.items():
            by_stream = name in BY_STREAM
            wanted = self._wanted(counts, kinds, by_stream)
            found = self._sums(name, SUMS[name], by_stream)
            since = self._since(f"gold/{name}")
            n = wrong = 0
            for key in sorted(wanted.keys() | found.keys()):
                if key[0] < since or key[0] in self.touched:
                    continue
                n += 1
                less = wanted.get(key, 0) - found.get(key, 0)
                if 0 <= less <= late.get((key[0], key[1], ""), 0):
                    continue
                wrong += 1
                if wrong <= LISTED:
                    due, n_found = wanted.get(key, 0), found.get(key, 0)
                    what = f"{n_found:,} in the sums, {due:,} in bronze"
                    faults.append(_fault(f"gold/{name}", what, key, abs(due - n_found)))
            tables[f"gold/{name}"] = {"rows": sum(found.values()), "windows": n, "wrong": wrong}
        if self.touched:
            notes.append(f"{len(self.touched):,} windows of gold from which rows were erased are not compared")

    def _wanted(self, counts: pa.Table, kinds: tuple[int, ...], by_stream: bool) -> dict[Key, int]:
        rows = counts.filter(pc.is_in(counts["kind"], pa.array(kinds, pa.int8())))
        return _totals(rows, rows["window"], "count_all", by_stream)

    def _sums(self, name: str, columns: tuple[str, ...], by_stream: bool) -> dict[Key, int]:
        table = self.snapshot.tables.get(f"gold/{name}")
        found: dict[Key, int] = {}
        if table is None:
            return found
        names = ["window_start", "node", *(["stream"] if by_stream else []), *columns]
        for batch in table.dataset().to_batches(columns=names):
            rows = pa.Table.from_batches([batch])
            total = rows[columns[0]]
            for column in columns[1:]:
                total = pc.add(total, rows[column])
            window = rows["window_start"].cast(TIME).cast(pa.int64())
            for key, n in _totals(rows.append_column("total", total), window, "total", by_stream).items():
                found[key] = found.get(key, 0) + n
        return found

    def _since(self, table: str) -> int:
        """Return the first window of which retention deleted nothing, in bronze and in gold."""
        dates = [self.before[name] for name in (BRONZE, table, "gold/late") if name in self.before]
        if not dates:
            return -(1 << 62)
        return self._window(datetime.datetime.combine(max(dates), datetime.time(), datetime.UTC)) + self.window_us


class Values:
    """Compare gold/telemetry with the rows of silver: the number of values in each window of each rule."""

    def __init__(self, snapshot: "Snapshot", before: dict[str, Any]) -> None:
        self.snapshot, self.before = snapshot, before
        self.window_us = int(snapshot.setup["window_us"])

    def rules(self) -> "Iterator[tuple[str, Telemetry]]":
        for name in self.snapshot.setup["silver_order"]:
            _, form, text, *more = self.snapshot.setup["silver"][name]
            if more and "event" in more[0]:
                schema = types.schema(OF_FORMAT.get(form) or text)
                rule = Rule(name, "", form, schema, Event.of_setup(more[0]["event"]))
                yield name, Telemetry(rule, schema, self.window_us, 0)

    def compare(
        self, tables: dict[str, dict[str, int]], faults: list[dict[str, Any]], moved: "Callable[[int], object]"
    ) -> None:
        total = {"rows": 0, "windows": 0, "wrong": 0}
        for name, rule in self.rules():
            wanted, found = self._wanted(name, rule, moved), self._found(name, moved)
            since = self._since(name, rule.event.ahead_us)
            for key in sorted(wanted.keys() | found.keys()):
                if key[0] < since:
                    continue
                total["windows"] += 1
                due, n = wanted.get(key, 0), found.get(key, 0)
                if due != n:
                    total["wrong"] += 1
                    if total["wrong"] <= LISTED:
                        what = f"{n:,} values in the sums, {due:,} in silver/{name}"
                        faults.append(_fault(TELEMETRY, what, key, abs(due - n)))
            total["rows"] += sum(found.values())
            tables[TELEMETRY] = total

    def _wanted(self, name: str, rule: Telemetry, moved: "Callable[[int], object]") -> dict[Key, int]:
        table = self.snapshot.tables.get(f"silver/{name}")
        found: dict[Key, int] = {}
        for batch in table.dataset().to_batches(columns=rule.columns) if table is not None else ():
            moved(batch.num_rows)
            for one in rule.counts(batch).to_pylist():
                key = one["window"], one["node"], one["stream"]
                found[key] = found.get(key, 0) + one["n"]
        return found

    def _found(self, name: str, moved: "Callable[[int], object]") -> dict[Key, int]:
        table = self.snapshot.tables.get(TELEMETRY)
        found: dict[Key, int] = {}
        names, which = ["window_start", "node", "stream", "count"], pc.field("silver") == name
        for batch in table.dataset().to_batches(columns=names, filter=which) if table is not None else ():
            moved(batch.num_rows)
            rows = pa.Table.from_batches([batch])
            window = rows["window_start"].cast(TIME).cast(pa.int64())
            for key, n in _totals(rows, window, "count", by_stream=True).items():
                found[key] = found.get(key, 0) + n
        return found

    def _since(self, name: str, ahead_us: int) -> int:
        """Return the first window to which no row belongs that retention deleted, in silver or gold."""
        found = -(1 << 62)
        for table, more_us in ((f"silver/{name}", ahead_us), (TELEMETRY, 0)):
            if table in self.before:
                found = max(found, self.before[table].toordinal() * DAY_US - EPOCH_US + more_us + self.window_us)
        return found


def _fault(table: str, what: str, key: Key, n: int) -> dict[str, Any]:
    start = datetime.datetime.fromtimestamp(key[0] / 1e6, datetime.UTC)
    window = {"node": key[1], "stream": key[2], "window_start": start.isoformat()}
    return {"table": table, "what": what, **window, "n": n}


def _totals(rows: pa.Table, window: Any, column: str, by_stream: bool) -> dict[Key, int]:
    keys = {"window": window, "node": rows["node"], **({"stream": rows["stream"]} if by_stream else {})}
    table = pa.table({**keys, "n": rows[column]})
    grouped = table.group_by(list(keys), use_threads=False).aggregate([("n", "sum")])
    return {
        (one["window"], one["node"], one.get("stream", "")): one["n_sum"] or 0 for one in grouped.to_pylist()
    }


# ---- gold/devices


class Last:
    """Count messages and accepted connections in bronze, and compare with gold/devices, place by place."""

    def __init__(self, snapshot: "Snapshot", removed: list[dict[str, Any]]) -> None:
        self.table = snapshot.tables.get(DEVICES)
        self.totals: Totals = {}  # of each node/stream/shard: how many, the last message
        # places of which rows were removed may have more rows in one of both
        self.touched = {"/".join(str(one[key]) for key in ("node", "stream", "shard")) for one in removed}
        self.is_whole = all(one["table"] not in (BRONZE, DEVICES) or one["before"] is None for one in removed)

    def take(self, rows: Any) -> None:
        """Take rows of bronze with node, stream, shard, seq, kind and reason."""
        kind = rows["kind"].to_numpy(zero_copy_only=False)
        reason = pc.fill_null(rows["reason"], 0).to_numpy(zero_copy_only=False)
        mask = (kind == MESSAGE) | ((kind == CONNECT) & (reason < REFUSED))
        rows = rows.filter(pa.array(mask))
        _add(self.totals, rows, np.ones(rows.num_rows, np.int64), kind[mask] == MESSAGE)

    def compare(self, tables: dict[str, dict[str, int]], faults: list[dict[str, Any]], notes: list[str]) -> None:
        if self.table is None:
            notes.append(f"there is no {DEVICES} yet: `mosq pipeline run` creates it")
            return
        if not self.is_whole:
            return
        found: Totals = {}
        for batch in self.table.dataset().to_batches(columns=["node", "stream", "shard", "topic", "seq", "messages"]):
            n = batch["messages"].to_numpy(zero_copy_only=False)
            rows = batch.filter(pa.array(n > 0))
            is_message = pc.not_equal(rows["topic"], "").to_numpy(zero_copy_only=False)
            _add(found, rows, n[n > 0], is_message)
        wrong = 0
        for place in sorted(self.totals.keys() | found.keys()):
            ours, wanted = found.get(place, (0, -1)), self.totals.get(place, (0, -1))
            if ours != wanted and place not in self.touched:
                wrong += 1
                node, stream, shard = place.rsplit("/", 2)
                what = WHAT.format(found=ours[0], last=ours[1], wanted=wanted[0], wanted_last=wanted[1])
                faults.append(
                    {
                        "table": DEVICES,
                        "what": what,
                        "node": node,
                        "stream": stream,
                        "shard": int(shard),
                        "from": min(ours[1], wanted[1]) + 1,
                        "to": max(ours[1], wanted[1]),
                        "n": abs(ours[0] - wanted[0]),
                    }
                )
        tables[DEVICES] = {"rows": self.table.rows(), "places": len(found), "wrong": wrong}


def _add(totals: Totals, rows: Any, n: Any, is_message: Any) -> None:
    if not rows.num_rows:
        return
    seqs = np.where(is_message, rows["seq"].to_numpy(zero_copy_only=False), -1)
    where = pc.binary_join_element_wise(rows["node"], rows["stream"], rows["shard"].cast("string"), "/")
    coded = where.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    for i, place in enumerate(coded.dictionary.to_pylist()):
        mine = codes == i
        had, last = totals.get(place, (0, -1))
        totals[place] = had + int(n[mine].sum()), max(last, int(seqs[mine].max()))
