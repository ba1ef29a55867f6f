"""Keep rows whose key silver has already out of silver: they go to the quarantine.

A row is a duplicate if silver has a row of the same key whose time differs by at most the horizon. In a batch the rows
are looked at in the order of their times. The driver remembers the hashes of the keys that silver has near the times of
the last batches. It reads others from silver when a batch needs them, as after a start or a jump of the clock.

Invariant: the duplicates depend only on the rows of silver before the batch, and on the rows of the batch. So a batch
that is done again after a kill has the same duplicates, and it does not matter which keys were remembered.
"""

import bisect
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake.parts import DATE, Part, PartWriter
from mosq.pipeline.rows import keys, types
from mosq.pipeline.rows.declared import key_columns
from mosq.pipeline.rows.positions import place_names
from mosq.pipeline.rows.tables import KEYS, QUARANTINE
from mosq.pipeline.rows.task import rule_schema
from mosq.pipeline.rows.telemetry import Telemetry
from mosq.pipeline.rows.work import Manifest, Rule, Values, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mosq.pipeline.lake.places import Place
    from mosq.pipeline.lake.table import Table
    from mosq.pipeline.rows.keys import Span

    Shards = Mapping[str, Mapping[str, int]]
    # gets sequence numbers, and yields rows of bronze with at least these: node, stream, shard, seq, payload
    Payloads = Callable[[list[int]], Iterable[Any]]
    Load = Callable[[Sequence[Span]], Iterable[pa.Table]]  # gets times, and yields the rows (keys.SCHEMA) of silver

REASON = "duplicate: silver has a row with this key"
RUNS = 8  # sorted runs of hashes, before they are merged
BYTES = 24  # of memory for each key
Key = tuple[str, str, int, int]  # node, stream, shard, seq


class _Run:
    """Hold hashes in the order of their first half and their time, with the time of their rows."""

    def __init__(self, high: Any, low: Any, time_us: Any) -> None:
        order = np.lexsort((time_us, high))
        self.high, self.low, self.time_us = (one[order] for one in (high, low, time_us))

    def __len__(self) -> int:
        return len(self.high)

    def near(self, begin: int, end: int, time_us: int, horizon_us: int) -> range:
        """Return which of the positions of a first half are of rows within the horizon. They are few."""
        first = bisect.bisect_left(self.time_us, time_us - horizon_us, begin, end)
        return range(first, bisect.bisect_right(self.time_us, time_us + horizon_us, first, end))

    def only(self, keep: Any) -> "_Run":
        return self if keep.all() else _Run(self.high[keep], self.low[keep], self.time_us[keep])


class Known:
    """Remember the keys of the rows of silver of one rule.

    `have` are the times of which all rows are remembered, `needed` those that the batches since the last merge needed.
    """

    def __init__(self, name: str, horizon_us: int, limit: int) -> None:
        self.name, self.horizon_us, self.limit = name, horizon_us, limit
        self.runs: list[_Run] = []
        self.have: list[Span] = []
        self.needed: list[Span] = []
        self.last: list[Span] = []  # what the last batch needed

    def take(self, rows: pa.Table) -> None:
        """Remember rows (keys.SCHEMA) that are in silver."""
        if not rows.num_rows:
            return
        self.runs.append(_Run(*(rows[name].to_numpy() for name in ("high", "low", "time_us"))))
        if len(self.runs) > RUNS:
            self._merge()

    def _merge(self) -> None:
        """Join the runs, and forget the rows that are far from what the last batches needed."""
        near = keys.widened(self.needed, self.horizon_us)
        kept = [run.only(keys.within(run.time_us, near)) for run in self.runs]
        joined = (np.concatenate([getattr(run, name) for run in kept]) for name in ("high", "low", "time_us"))
        self.runs = [_Run(*joined)] if kept else []
        self.have = keys.common(self.have, near)
        self.needed = self.last

    def check_size(self, more: int) -> None:
        """Raise MosqPipelineError if there are more keys than the limit."""
        if sum(map(len, self.runs)) + more > self.limit:
            self.needed = self.last
            self._merge()
            n = sum(map(len, self.runs)) + more
            if n > self.limit:
                raise MosqPipelineError(
                    f"silver {self.name}: {n:,} keys within two key_horizon are more than key_limit ({self.limit:,}):"
                    f" nothing was committed; increase key_limit ({BYTES} bytes of memory for each key), or make"
                    " key_horizon shorter and `run --rebuild`"
                )

    def _fetch(self, times: Any, load: "Load | None") -> None:
        """Remember all rows of silver that rows of these times may be compared with."""
        self.last = keys.spans(times, self.horizon_us)
        self.needed = keys.joined([*self.needed, *self.last])
        if load is None or not keys.without(self.last, self.have):
            return
        wanted = keys.without(keys.widened(self.last, self.horizon_us), self.have)
        self.runs = [run.only(~keys.within(run.time_us, wanted)) for run in self.runs]  # silver has them too
        for rows in load(wanted):
            self.take(rows)
            self.check_size(0)
        self.have = keys.joined([*self.have, *wanted])

    def duplicates(self, rows: pa.Table, load: "Load | None" = None) -> Any:
        """Return which rows (keys.SCHEMA) are duplicates; `load` reads rows of silver that are not remembered."""
        found = np.zeros(rows.num_rows, bool)
        if not rows.num_rows:
            return found
        high, low, time_us = (rows[name].to_numpy() for name in ("high", "low", "time_us"))
        self._fetch(time_us, load)
        _, inverse, n = np.unique(high, return_inverse=True, return_counts=True)
        hits = [(run, *(np.searchsorted(run.high, high, side) for side in ("left", "right"))) for run in self.runs]
        candidates = n[inverse] > 1
        for _, left, right in hits:
            candidates |= left < right
        seen: dict[tuple[int, int], int] = {}  # the newest time: rows come in the order of their times
        for i in self._ordered(rows, candidates):
            key, at = (int(high[i]), int(low[i])), int(time_us[i])
            found[i] = (key in seen and at - seen[key] <= self.horizon_us) or any(
                run.low[k] == low[i]
                for run, left, right in hits
                for k in run.near(left[i], right[i], at, self.horizon_us)
            )
            if not found[i]:
                seen[key] = at
        return found

    @staticmethod
    def _ordered(rows: pa.Table, which: Any) -> list[int]:
        """Return the positions of some rows in the order of time, node, stream, shard and seq."""
        at = np.flatnonzero(which)
        order = [(name, "ascending") for name in ("time_us", "node", "stream", "shard", "seq")]
        some = rows.take(pa.array(at)).append_column("at", pa.array(at))
        found: list[int] = some.sort_by(order)["at"].to_pylist()
        return found


class Duplicates:
    """Find the duplicates of all rules that declare a key, and take them out of manifests.

    `tables` has silver as far as it is committed; without it (a rebuild) the dates of bronze must come in their order.
    """

    def __init__(self, rules: "Iterable[Rule]", work: Work, tables: "Mapping[str, Table] | None" = None) -> None:
        self.work = work  # what the tasks do: place, salt, windows
        self.tables = tables
        self.rules = {rule.name: rule for rule in rules if rule.unique is not None}
        self.known = {
            name: Known(name, rule.unique.horizon_us, rule.unique.limit)
            for name, rule in self.rules.items()
            if rule.unique is not None
        }
        self.fresh: dict[str, pa.Table] = {}

    def _of_silver(self, rule: Rule, times: "Sequence[Span]", shards: "Shards") -> "Iterator[pa.Table]":
        """Yield the rows (keys.SCHEMA) of silver of these times, up to the numbers of a state."""
        newest = max((one["time_us"] for one in shards.values()), default=0)
        there = [(lo, hi) for lo, hi in times if lo <= newest]
        table = (self.tables or {}).get(rule.table)
        if table is None or not there:
            return
        columns, time = _columns(rule), pc.field("time")
        which = pc.scalar(False)
        for lo, hi in there:
            which |= (time >= keys.moment(lo)) & (time <= keys.moment(hi))
        names = list(dict.fromkeys([*keys.PLACE, "time", *columns]))
        for batch in table.refresh().dataset().to_batches(columns=names, filter=which):
            rows, _ = keys.hashed(batch, columns, self.work.salt)
            places = place_names(rows).combine_chunks().dictionary_encode()
            nexts = [shards.get(one, {"next": 0})["next"] for one in places.dictionary.to_pylist()]
            ends = np.array(nexts or [0], np.int64)[places.indices.to_numpy(zero_copy_only=False)]
            yield rows.filter(pa.array(rows["seq"].to_numpy() < ends))

    def settle(self, manifest: Manifest, shards: "Shards", payloads: "Payloads | None" = None) -> None:
        """Take the duplicates out of a manifest; `shards` has the state before it."""
        self.fresh = {}
        for name, found in manifest.keys.items():
            known, rule = self.known[name], self.rules[name]
            load = None if self.tables is None else functools.partial(self._of_silver, rule, shards=shards)
            mask = known.duplicates(found, load)
            self.fresh[name] = found.filter(pa.array(~mask))
            known.check_size(self.fresh[name].num_rows)
            if mask.any():
                gone = found.filter(pa.array(mask)).select(list(keys.PLACE)).to_pylist()
                which = {(one["node"], one["stream"], one["shard"], one["seq"]) for one in gone}
                self._take_out(manifest, rule, which, payloads or self._of_parts(manifest))

    def committed(self) -> None:
        """Remember the rows of the last manifest: they are in silver now."""
        for name, rows in self.fresh.items():
            self.known[name].take(rows)
        self.fresh = {}

    def _of_parts(self, manifest: Manifest) -> "Payloads":
        def read(seqs: list[int]) -> "Iterable[Any]":
            for part in manifest.parts.get("bronze", ()):
                yield _read(self.work.place, part, pc.field("seq").isin(seqs), [*keys.PLACE, "payload"])

        return read

    def _take_out(self, manifest: Manifest, rule: Rule, which: set[Key], payloads: "Payloads") -> None:
        schema = rule_schema(rule)
        assert schema is not None
        of_table = types.silver_schema(schema)
        writer = PartWriter(self.work.place, rule.table, of_table)
        again = Telemetry(rule, schema, self.work.window_us, self.work.late_us) if rule.event is not None else None
        gone: list[pa.Table] = []
        whole: list[Part] = []
        for part in manifest.parts[rule.table]:
            rows = _dated(_read(self.work.place, part), part, of_table)
            mask = _among(rows, which)
            if mask.any():
                gone.append(rows.filter(pa.array(mask)).select(KEYS))
                rows = rows.filter(pa.array(~mask))
                writer.write(rows)
            else:
                whole.append(part)
            if again is not None:
                again.add(rows.combine_chunks())
        left = [*whole, *writer.close()]
        manifest.parts[rule.table] = left
        manifest.rows[rule.table] = sum(part.rows for part in left)
        if again is not None and rule.name in manifest.telemetry:
            manifest.telemetry[rule.name] = Values(again.content(), again.late, again.misdated)
        self._quarantine(manifest, rule, pa.concat_tables(gone), payloads)

    def _quarantine(self, manifest: Manifest, rule: Rule, rows: pa.Table, payloads: "Payloads") -> None:
        found: dict[Key, bytes | None] = {}
        for batch in payloads(rows["seq"].to_pylist()):
            for one in batch.select([*keys.PLACE, "payload"]).to_pylist():
                found[one["node"], one["stream"], one["shard"], one["seq"]] = one["payload"]
        content = [found.get(key) for key in zip(*(rows[name].to_pylist() for name in keys.PLACE), strict=True)]
        n = rows.num_rows
        columns = {
            **{name: rows[name] for name in KEYS},
            "silver": pa.repeat(rule.name, n),
            "reason": pa.repeat(REASON, n),
            "payload": pa.array(content, pa.binary()),
        }
        writer = PartWriter(self.work.place, "quarantine", QUARANTINE)
        writer.write(pa.table({field.name: columns[field.name] for field in QUARANTINE}).cast(QUARANTINE))
        manifest.parts.setdefault("quarantine", []).extend(writer.close())
        manifest.rows["quarantine"] += n
        manifest.bad[REASON] += n


def _columns(rule: Rule) -> list[str]:
    schema = rule_schema(rule)
    assert schema is not None
    return key_columns(rule, schema)


def _read(place: "Place", part: Part, filter: Any = None, columns: list[str] | None = None) -> pa.Table:
    files, base = place.child(part.table).filesystem()
    path = f"{base}/{part.path}" if base else part.path
    return pq.read_table(path, filesystem=files, partitioning=None, filters=filter, columns=columns)


def _dated(rows: pa.Table, part: Part, schema: pa.Schema) -> pa.Table:
    date = pa.scalar(part.date or None, pa.string()).cast(schema.field(DATE).type)
    return rows.append_column(DATE, pa.repeat(date, rows.num_rows)).select(schema.names).cast(schema)


def _among(rows: pa.Table, which: set[Key]) -> Any:
    """Return which rows have one of the keys."""
    found = np.zeros(rows.num_rows, bool)
    at = pc.indices_nonzero(pc.is_in(rows["seq"], pa.array(sorted({key[3] for key in which}), pa.int64())))
    some = rows.select(list(keys.PLACE)).take(at)
    for i, key in zip(at.to_pylist(), zip(*(some[name].to_pylist() for name in keys.PLACE), strict=True), strict=True):
        found[i] = key in which
    return found
