"""Keep rows whose key silver has already out of silver: they go to the quarantine.

A row is a duplicate if silver has a row of the same key whose time differs by at most the horizon. In a batch the rows
are looked at in the order of their times. The driver remembers the hashes of the keys that are in silver, and reads
them from silver when it begins; it has no other state.

Invariant: the duplicates depend only on the rows of silver before the batch, on the state before it, and on the
rows of the batch. So a batch that is done again after a kill has the same duplicates. Remembered keys are compared
while they are younger than two horizons before the newest row of all shards, or than one horizon before the newest row
of their own shard.
"""

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake.parts import DATE, Part, PartWriter
from mosq.pipeline.rows import keys, types
from mosq.pipeline.rows.declared import key_columns
from mosq.pipeline.rows.tables import KEYS, QUARANTINE, TIME
from mosq.pipeline.rows.task import rule_schema
from mosq.pipeline.rows.telemetry import Telemetry
from mosq.pipeline.rows.work import Manifest, Rule, Values, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mosq.pipeline.lake.places import Place
    from mosq.pipeline.lake.table import Table

    Shards = Mapping[str, Mapping[str, int]]
    # gets sequence numbers, and yields rows of bronze with at least these: node, stream, shard, seq, payload
    Payloads = Callable[[list[int]], Iterable[Any]]

REASON = "duplicate: silver has a row with this key"
RUNS = 8  # sorted runs of hashes, before they are merged
BYTES = 32  # of memory for each key
Key = tuple[str, str, int, int]  # node, stream, shard, seq


class _Run:
    """Hold hashes in the order of their first half and their time, with the time and the place of their rows."""

    def __init__(self, high: Any, low: Any, time_us: Any, place: Any) -> None:
        order = np.lexsort((time_us, high))
        self.high, self.low, self.time_us, self.place = (one[order] for one in (high, low, time_us, place))

    def __len__(self) -> int:
        return len(self.high)

    def near(self, begin: int, end: int, time_us: int, horizon_us: int) -> range:
        """Return which of the positions of a first half are of rows within the horizon. They are few."""
        first = bisect.bisect_left(self.time_us, time_us - horizon_us, begin, end)
        return range(first, bisect.bisect_right(self.time_us, time_us + horizon_us, first, end))

    def kept(self, ends: Any) -> "_Run":
        keep = self.time_us >= ends[self.place]
        return self if keep.all() else _Run(self.high[keep], self.low[keep], self.time_us[keep], self.place[keep])


class Known:
    """Remember the keys of the rows of silver of one rule."""

    def __init__(self, name: str, horizon_us: int, limit: int) -> None:
        self.name, self.horizon_us, self.limit = name, horizon_us, limit
        self.runs: list[_Run] = []
        self.places: dict[str, int] = {}

    def ends(self, shards: "Shards") -> Any:
        """Return for each place the time before which its rows are not compared any more."""
        newest = max((one["time_us"] for one in shards.values()), default=0)
        floor = newest - 2 * self.horizon_us
        own = [shards.get(place, {"time_us": newest})["time_us"] - self.horizon_us for place in self.places]
        return np.minimum(np.array(own or [floor], np.int64), floor)

    def _place(self, rows: pa.Table) -> Any:
        names = pc.binary_join_element_wise(rows["node"], rows["stream"], rows["shard"].cast(pa.string()), "/")
        coded = names.combine_chunks().dictionary_encode()
        numbers = [self.places.setdefault(one, len(self.places)) for one in coded.dictionary.to_pylist()]
        return np.array(numbers or [0], np.int64)[coded.indices.to_numpy(zero_copy_only=False)]

    def take(self, rows: pa.Table, shards: "Shards") -> None:
        """Remember rows (keys.SCHEMA) that are in silver."""
        if not rows.num_rows:
            return
        high, low, time_us = (rows[name].to_numpy() for name in ("high", "low", "time_us"))
        self.runs.append(_Run(high, low, time_us, self._place(rows)))
        if len(self.runs) > RUNS:
            self._merge(shards)

    def _merge(self, shards: "Shards") -> None:
        ends = self.ends(shards)
        kept = [run.kept(ends) for run in self.runs]
        joined = [np.concatenate([getattr(run, name) for run in kept]) for name in ("high", "low", "time_us", "place")]
        self.runs = [_Run(joined[0], joined[1], joined[2], joined[3])]

    def check_size(self, more: int, shards: "Shards") -> None:
        """Raise MosqPipelineError if there are more keys than the limit."""
        if sum(map(len, self.runs)) + more > self.limit:
            self._merge(shards)
            n = sum(map(len, self.runs)) + more
            if n > self.limit:
                raise MosqPipelineError(
                    f"silver {self.name}: {n:,} keys within two key_horizon are more than key_limit ({self.limit:,}):"
                    f" nothing was committed; increase key_limit ({BYTES} bytes of memory for each key), or make"
                    " key_horizon shorter and `run --rebuild`"
                )

    def duplicates(self, rows: pa.Table, shards: "Shards") -> Any:
        """Return which rows (keys.SCHEMA) are duplicates."""
        found = np.zeros(rows.num_rows, bool)
        if not rows.num_rows:
            return found
        high, low, time_us = (rows[name].to_numpy() for name in ("high", "low", "time_us"))
        _, inverse, n = np.unique(high, return_inverse=True, return_counts=True)
        hits = [(run, *(np.searchsorted(run.high, high, side) for side in ("left", "right"))) for run in self.runs]
        candidates = n[inverse] > 1
        for _, left, right in hits:
            candidates |= left < right
        ends = self.ends(shards)
        seen: dict[tuple[int, int], int] = {}  # the newest time: rows come in the order of their times
        for i in self._ordered(rows, candidates):
            key, at = (int(high[i]), int(low[i])), int(time_us[i])
            found[i] = (key in seen and at - seen[key] <= self.horizon_us) or any(
                run.low[k] == low[i] and run.time_us[k] >= ends[run.place[k]]
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
    """Find the duplicates of all rules that declare a key, and take them out of manifests."""

    def __init__(self, rules: "Iterable[Rule]", work: Work) -> None:
        self.work = work  # what the tasks do: place, salt, windows
        self.rules = {rule.name: rule for rule in rules if rule.unique is not None}
        self.known = {
            name: Known(name, rule.unique.horizon_us, rule.unique.limit)
            for name, rule in self.rules.items()
            if rule.unique is not None
        }
        self.fresh: dict[str, pa.Table] = {}

    def restore(self, tables: "Mapping[str, Table]", shards: "Shards") -> None:
        """Remember the keys of silver, up to the numbers of a state."""
        for name, rule in self.rules.items():
            known = self.known[name]
            known.places = {place: i for i, place in enumerate(shards)}
            table = tables.get(rule.table)
            if table is None or not shards:
                continue
            ends = known.ends(shards)
            columns = _columns(rule)
            which = pc.field("time") >= pa.scalar(int(ends.min()), pa.int64()).cast(TIME)
            names = list(dict.fromkeys([*keys.PLACE, "time", *columns]))
            for batch in table.dataset().to_batches(columns=names, filter=which):
                rows, _ = keys.hashed(batch, columns, self.work.salt)
                place = known._place(rows)
                nexts = np.array([shards.get(one, {"next": 0})["next"] for one in known.places], np.int64)
                mask = rows["seq"].to_numpy() < nexts[place]
                known.take(rows.filter(pa.array(mask)), shards)
                known.check_size(0, shards)

    def settle(self, manifest: Manifest, shards: "Shards", payloads: "Payloads | None" = None) -> None:
        """Take the duplicates out of a manifest; `shards` has the state before it."""
        self.fresh = {}
        for name, found in manifest.keys.items():
            known = self.known[name]
            mask = known.duplicates(found, shards)
            self.fresh[name] = found.filter(pa.array(~mask))
            known.check_size(self.fresh[name].num_rows, shards)
            if mask.any():
                gone = found.filter(pa.array(mask)).select(list(keys.PLACE)).to_pylist()
                which = {(one["node"], one["stream"], one["shard"], one["seq"]) for one in gone}
                self._take_out(manifest, self.rules[name], which, payloads or self._of_parts(manifest))

    def committed(self, shards: "Shards") -> None:
        """Remember the rows of the last manifest: they are in silver now."""
        for name, rows in self.fresh.items():
            self.known[name].take(rows, shards)
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
