"""Compare journal, bronze, silver, quarantine and gold, number by number: `mosq pipeline verify`.

The tables are read as they were after one batch: a table that has a later batch already is read at an older version.
So `run` may run. Rows that retention or an erasure deleted are no fault (removed.py).

Memory: a few bytes for each of PASS_NUMBERS numbers. A longer range of numbers is compared in several passes, of which
each reads only the files that have its numbers.
"""

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.arrow import batches
from mosq.journal.kinds import ACCOUNT, MESSAGE
from mosq.journal.parts import marks_of
from mosq.pipeline import MosqPipelineError, filters, sparkplug
from mosq.pipeline.lake import lock as locks
from mosq.pipeline.rows.positions import FROM, IS_GAP, at_place, place_names
from mosq.pipeline.runs import progress, removed
from mosq.pipeline.runs.progress import BRONZE, SWAP
from mosq.pipeline.runs.sums_check import Last, Values, Windows
from mosq.pipeline.runs.tableset import BACKLOG, QUARANTINE, adds_values
from mosq.pipeline.runs.versions import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mosq.pipeline.settings import Settings

    Moved = Callable[[int], object]

PASS_NUMBERS = 16 << 20  # numbers compared at once
RANGES = 1000  # of each fault that are listed one by one; further ones are only counted
MOST = 255
AUDIT = "account"  # the name in quarantine.silver of events that the audit cannot read
KEY = ("node", "stream", "shard", "seq")
READ_ROWS = 1 << 17


@dataclass(frozen=True)
class Span:
    """Hold numbers [lo, hi) of a place."""

    place: tuple[str, str, int]
    lo: int
    hi: int

    @property
    def name(self) -> str:
        return "/".join(map(str, self.place))


@dataclass
class Found:
    """Hold the result."""

    batch: int = -1
    shards: dict[str, dict[str, int]] = field(default_factory=dict)  # of each node/stream/shard
    tables: dict[str, dict[str, int]] = field(default_factory=dict)  # of each table but bronze
    faults: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def adds_up(self) -> bool:
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        return {"adds_up": self.adds_up, **asdict(self)}

    def fault(self, table: str, what: str, span: Span, mask: Any) -> int:
        """Take the ranges in which a mask over the numbers of a span is true; return how many numbers."""
        n = int(np.count_nonzero(mask))
        if not n:
            return 0
        edges = np.flatnonzero(np.diff(np.r_[0, mask.astype(np.int8), 0]))
        pairs = edges.reshape(-1, 2)
        for lo, hi in pairs[:RANGES].tolist():
            self._fault(table, what, span, lo, hi, hi - lo)
        if len(pairs) > RANGES:
            lo, hi = int(pairs[RANGES][0]), int(pairs[-1][1])
            self._fault(table, what, span, lo, hi, int(np.count_nonzero(mask[lo:])))
        return n

    def _fault(self, table: str, what: str, span: Span, lo: int, hi: int, n: int) -> None:
        node, stream, shard = span.place
        self.faults.append(
            {
                "table": table,
                "what": what,
                "node": node,
                "stream": stream,
                "shard": shard,
                "from": span.lo + lo,
                "to": span.lo + hi - 1,
                "n": n,
            }
        )


class Pass:
    """Count the rows of the numbers of some spans; all arrays have one item for each number."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans
        self.at = {span.name: i for i, span in enumerate(spans)}
        sizes = [span.hi - span.lo for span in spans]
        self.base = np.r_[0, np.cumsum(sizes)]
        self.lo = np.array([span.lo for span in spans] or [0], np.int64)
        self.hi = np.array([span.hi for span in spans] or [0], np.int64)
        n = int(self.base[-1])
        self.journal, self.bronze, self.served = (np.zeros(n, np.uint8) for _ in range(3))
        self.gone, self.optional, self.gap = (np.zeros(n, bool) for _ in range(3))
        self.rule = np.zeros(n, np.int16)  # the rule that must have a row: 1, 2, ...; 0: none
        self.strange = np.zeros(n, bool)  # a row of another rule than the one that must have it
        self.last = -1

    def of(self, array: Any, span: Span) -> Any:
        i = self.at[span.name]
        return array[self.base[i] : self.base[i + 1]]

    def numbers(self, batch: Any) -> tuple[Any, Any]:
        """Return which rows are inside the spans, and the positions of these in the arrays."""
        if not batch.num_rows:
            return np.zeros(0, bool), np.zeros(0, np.int64)
        coded = place_names(batch).dictionary_encode()
        known = np.array([self.at.get(name, -1) for name in coded.dictionary.to_pylist()], np.int64)
        which = known[coded.indices.to_numpy(zero_copy_only=False)]
        seq = batch["seq"].to_numpy(zero_copy_only=False)
        inside = (which >= 0) & (seq >= self.lo[which]) & (seq < self.hi[which])
        return inside, self.base[which[inside]] + seq[inside] - self.lo[which[inside]]

    @staticmethod
    def add(counts: Any, at: Any) -> Any:
        """Add 1 for each position; return the positions without repetition."""
        each, n = np.unique(at, return_counts=True)
        counts[each] = np.minimum(counts[each].astype(np.int64) + n, MOST)
        return each

    def filter(self) -> Any:
        """Return an expression for the rows of the spans, so that files without them are not read."""
        found = pc.scalar(False)
        for span in self.spans:
            found |= at_place(span.place) & (pc.field("seq") >= span.lo) & (pc.field("seq") < span.hi)
        return found

    def mark(self, array: Any, row: "Mapping[str, Any]", lo: int, hi: int) -> None:
        """Set the items of numbers [lo, hi) of the place of a row, as far as the pass has them."""
        i = self.at.get(f"{row['node']}/{row['stream']}/{row['shard']}")
        if i is not None:
            span = self.spans[i]
            lo, hi = max(lo, span.lo) - span.lo, min(hi, span.hi) - span.lo
            if lo < hi:
                self.of(array, span)[lo:hi] = True


class Verification:
    """Compare everything once."""

    def __init__(self, settings: "Settings", snapshot: Snapshot, moved: "Moved | None" = None) -> None:
        self.settings, self.snapshot = settings, snapshot
        self.state, self.jobs = snapshot.state, set(snapshot.setup["jobs"])
        self.tables, self.moved = snapshot.tables, moved or (lambda n: None)
        self.found = Found(self.state["batch"])
        self.removed = removed.read(settings)
        self.before = self._before()
        self.rules = self._rules()
        self.streams = self._streams()
        self.values = Values(snapshot, self.before) if adds_values(self.jobs) else None
        self.windows = Windows(snapshot, self.removed, self.before) if "gold" in self.jobs else None
        self.last = Last(snapshot, self.removed) if "gold" in self.jobs else None
        self.of_topic: dict[str, int] = {}

    def _before(self) -> dict[str, Any]:
        """Return for each table the date before which retention deleted all rows."""
        found: dict[str, Any] = {}
        for one in self.removed:
            if one["before"] is not None:
                found[one["table"]] = max(found.get(one["table"], one["before"]), one["before"])
        return found

    def _rules(self) -> list[tuple[str, str, Any, str]]:
        """Return (name in quarantine, table, expression for topics, format) of each rule, in their order."""
        setup = self.snapshot.setup
        found = []
        if "silver" in self.jobs:
            for name in setup["silver_order"]:
                topic, form = setup["silver"][name][:2]
                found.append((name, f"silver/{name}", re.compile(filters.regex(topic)), form))
        return found

    def _streams(self) -> dict[tuple[str, str], Any]:
        """Return the streams of the journal; none if it cannot be read here."""
        try:
            found = progress.streams(self.settings)
            return {(node, name): one for key, one in found.items() for node, _, name in (key.partition("/"),)}
        except (MosqPipelineError, OSError, ValueError) as error:
            self.found.notes.append(f"the journal is not compared: {error}")
            return {}

    # ---- the passes

    def size(self) -> int:
        """Return the number of rows to read, as far as it is known."""
        rows = sum(table.rows() for table in self.tables.values())
        return rows + sum(span.hi - span.lo for span in self.spans())

    def spans(self) -> list[Span]:
        found = []
        for name, shard in sorted(self.state["shards"].items()):
            node, stream, number = name.rsplit("/", 2)
            first = shard.get("first")
            if first is None:  # written by an earlier version
                first = self._least(node, stream, int(number), shard["next"])
            found.append(Span((node, stream, int(number)), first, shard["next"]))
        return found

    def _least(self, node: str, stream: str, shard: int, upto: int) -> int:
        least = upto
        here = at_place((node, stream, shard))
        for batch in self.tables[BRONZE].dataset().to_batches(columns=["seq"], filter=here):
            least = min(least, pc.min(batch["seq"]).as_py() if batch.num_rows else least)
        return least

    def passes(self) -> "Iterator[Pass]":
        waiting: list[Span] = []
        room = PASS_NUMBERS
        for span in self.spans():
            lo = span.lo
            while lo < span.hi:
                hi = min(span.hi, lo + room)
                waiting.append(Span(span.place, lo, hi))
                room -= hi - lo
                lo = hi
                if room == 0:
                    yield Pass(waiting)
                    waiting, room = [], PASS_NUMBERS
        if waiting:
            yield Pass(waiting)

    def run(self) -> Found:
        for one in self.passes():
            self._journal(one)
            self._removed(one)
            self._bronze(one)
            for i, (name, table, _, form) in enumerate(self.rules, 1):
                self._served(one, table, i, name, form)
            if "audit" in self.jobs:
                self._served(one, BACKLOG, len(self.rules) + 1, AUDIT, "")
            self._quarantine(one)
            self._compare(one)
        if self.windows is not None:
            self.windows.compare(self.found.tables, self.found.faults, self.found.notes)
        if self.values is not None:
            self.values.compare(self.found.tables, self.found.faults, self.moved)
        if self.last is not None:
            self.last.compare(self.found.tables, self.found.faults, self.found.notes)
        return self.found

    def _journal(self, one: Pass) -> None:
        for span in one.spans:
            node, name, shard = span.place
            stream = self.streams.get((node, name))
            if stream is None:
                continue
            mark = marks_of(stream.path)["shards"][shard]
            lo, hi = max(span.lo, mark["first_seq"]), min(span.hi, mark["seq"])
            present = one.of(one.journal, span)
            if hi < span.hi:
                behind = np.arange(span.lo, span.hi) >= max(hi, span.lo)
                self.found.fault("journal", "ends before the tables: an older copy?", span, behind)
            if lo < hi:
                for batch in batches(stream.path, shard, lo, hi, lost=lambda hole: None):
                    present[batch["seq"].to_numpy(zero_copy_only=False) - span.lo] = 1
                    self.moved(batch.num_rows)

    def _removed(self, one: Pass) -> None:
        for row in self.removed:
            if row["table"] == BRONZE and row["lo"] is not None:
                one.mark(one.gone, row, row["lo"], row["hi"])

    def _rows(self, one: Pass, table: str, columns: tuple[str, ...]) -> "Iterator[tuple[Any, Any, Any]]":
        """Yield batches of a table, which of their rows are in the pass, and the positions of these."""
        if table not in self.tables:
            return
        data = self.tables[table].dataset()
        for batch in data.to_batches(columns=[*KEY, *columns], filter=one.filter(), batch_size=READ_ROWS):
            inside, at = one.numbers(batch)
            self.moved(batch.num_rows)
            if len(at):
                yield batch, inside, at

    def _bronze(self, one: Pass) -> None:
        for batch, inside, at in self._rows(one, BRONZE, ("date", "time", "kind", "reason", "topic")):
            one.add(one.bronze, at)
            kind = batch["kind"].to_numpy(zero_copy_only=False)
            rule = np.zeros(batch.num_rows, np.int16)
            message = kind == MESSAGE
            if message.any() and self.rules:
                topics = batch["topic"].dictionary_encode()
                of_topic = np.array([*map(self._rule, topics.dictionary.to_pylist()), self._rule("")], np.int16)
                codes = pc.fill_null(topics.indices, len(of_topic) - 1).to_numpy(zero_copy_only=False)
                rule[message] = of_topic[codes[message]]
            if "audit" in self.jobs:
                rule[kind == ACCOUNT] = len(self.rules) + 1
            one.rule[at] = rule[inside]
            self._may_lack(one, batch, inside, at, rule)
            if self.windows is not None:
                self.windows.take(batch.filter(pa.array(inside)))
            if self.last is not None:
                self.last.take(batch.filter(pa.array(inside)))
        self._gaps(one)

    def _rule(self, topic: str) -> int:
        if topic not in self.of_topic:
            if len(self.of_topic) > 1 << 20:
                self.of_topic.clear()
            found = (i for i, (_, _, expression, _) in enumerate(self.rules, 1) if expression.search(topic))
            self.of_topic[topic] = next(found, 0)
        return self.of_topic[topic]

    def _may_lack(self, one: Pass, batch: Any, inside: Any, at: Any, rule: Any) -> None:
        """Mark the rows that need not be in silver: retention deleted them there, or the schema is not known yet."""
        days = pc.fill_null(batch["date"].cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        for i, (name, table, _, _) in enumerate([*self.rules, (AUDIT, BACKLOG, None, "")], 1):
            befores = [self.before[one] for one in (table, QUARANTINE) if one in self.before]
            if not befores and name not in self.state["pending"] and name not in self.state["backfill"]:
                continue
            mask = np.zeros(batch.num_rows, bool)
            if befores:
                mask |= days < pa.scalar(max(befores), pa.date32()).cast(pa.int32()).as_py()
            if name in self.state["pending"]:
                mask[:] = True
            elif name in self.state["backfill"]:
                upto = self.state["backfill"][name]
                ends = np.array([upto.get(place, 0) for place in place_names(batch).to_pylist()], np.int64)
                mask |= batch["seq"].to_numpy(zero_copy_only=False) < ends
            if mask.any():
                one.optional[at] |= (mask & (rule == i))[inside]

    def _gaps(self, one: Pass) -> None:
        """Mark the numbers for which a row of kind gap stands."""
        data = self.tables[BRONZE].dataset()
        for row in data.to_table(columns=["node", "stream", "shard", "payload"], filter=IS_GAP).to_pylist():
            gap = FROM.search(row["payload"] or b"")
            if gap is not None:
                one.mark(one.gap, row, int(gap[1]), int(gap[2]) + 1)

    def _served(self, one: Pass, table: str, number: int, name: str, form: str) -> None:
        one.last = -1
        for _, _, at in self._rows(one, table, ()):
            if form == "sparkplug":  # a message has a row for each metric, one after the other
                begins = np.r_[at[:1] != one.last, np.diff(at) != 0]
                one.last = int(at[-1])
                at = at[begins]
            self._count(table, len(at))
            each = one.add(one.served, at)
            one.strange[each] |= one.rule[each] != number

    def _quarantine(self, one: Pass) -> None:
        numbers = {name: i for i, (name, *_) in enumerate([*self.rules, (AUDIT,)], 1)}
        for batch, inside, at in self._rows(one, QUARANTINE, ("silver",)):
            coded = batch["silver"].dictionary_encode()
            of_name = np.array([numbers.get(name, -1) for name in coded.dictionary.to_pylist()], np.int16)
            number = of_name[coded.indices.to_numpy(zero_copy_only=False)][inside]
            self._count(QUARANTINE, len(at))
            one.add(one.served, at)
            one.strange[at] |= one.rule[at] != number

    def _count(self, table: str, n: int) -> None:
        counts = self.found.tables.setdefault(table, {"rows": 0, "missing": 0, "doubled": 0, "strange": 0})
        counts["rows"] += n

    # ---- the result

    def _compare(self, one: Pass) -> None:
        for span in one.spans:
            bronze, gone, gap, journal = (one.of(a, span) for a in (one.bronze, one.gone, one.gap, one.journal))
            there = (bronze > 0) | gap
            missing, doubled = ~there & ~gone, bronze > 1
            self.found.fault(BRONZE, "missing, in the journal", span, missing & (journal > 0))
            self.found.fault(BRONZE, "missing, not in the journal any more", span, missing & (journal == 0))
            self.found.fault(BRONZE, "doubled", span, doubled)
            had = self.found.shards.setdefault(
                span.name,
                {"from": span.lo, "to": span.hi - 1, "journal": 0, "bronze": 0, "gaps": 0, "removed": 0, "missing": 0,
                 "doubled": 0},
            )  # fmt: skip
            had["to"] = span.hi - 1
            had["journal"] += int(np.count_nonzero(journal))
            had["bronze"] += int(bronze.sum(dtype=np.int64))
            had["gaps"] += int(np.count_nonzero(gap & (bronze == 0)))
            had["removed"] += int(np.count_nonzero(gone & ~there))
            had["missing"] += int(np.count_nonzero(missing))
            had["doubled"] += int(np.count_nonzero(doubled))
            self._compare_silver(one, span)

    def _compare_silver(self, one: Pass, span: Span) -> None:
        rule, served, optional = (one.of(a, span) for a in (one.rule, one.served, one.optional))
        gone, strange, bronze = (one.of(a, span) for a in (one.gone, one.strange, one.bronze))
        for i, (_, table, _, form) in enumerate([*self.rules, (AUDIT, BACKLOG, None, "")], 1):
            mine = rule == i
            if not mine.any():
                continue
            self._count(table, 0)
            counts = self.found.tables[table]
            missing = mine & (served == 0) & ~optional
            if form == "sparkplug" and missing.any():
                missing &= ~self._without_metrics(span, missing)
            counts["missing"] += self.found.fault(table, "missing, also in quarantine", span, missing)
            doubled = mine & (served > 1) & (bronze < 2)
            counts["doubled"] += self.found.fault(table, "doubled, or in quarantine too", span, doubled)
        n = self.found.fault("silver", "rows without a message of their rule in bronze", span, strange & ~gone)
        if n:
            self._count("silver", 0)
            self.found.tables["silver"]["strange"] += n

    def _without_metrics(self, span: Span, missing: Any) -> Any:
        """Return which of the missing messages of Sparkplug have no metric, and so no row."""
        found = np.zeros(len(missing), bool)
        which = at_place(span.place) & pc.field("seq").isin(pa.array(np.flatnonzero(missing) + span.lo))
        for batch in self.tables[BRONZE].dataset().to_batches(columns=["seq", "topic", "payload"], filter=which):
            for row in batch.to_pylist():
                try:
                    found[row["seq"] - span.lo] = not sparkplug.metrics(row["topic"], row["payload"])
                except sparkplug.UnreadableError:
                    continue
        return found


def verify(settings: "Settings", begin: "Callable[[int], Moved] | None" = None) -> Found:
    """Compare journal and tables; `begin` gets the number of rows to read and returns the function that counts them."""
    if (settings.checkpoints / SWAP).exists():
        raise MosqPipelineError(progress.HALF_SWITCHED)
    about = progress.get(settings.checkpoints / progress.IDENTITY)
    if about is None or not about["made"]:
        progress.check(settings, {})  # tables without checkpoints
        raise MosqPipelineError(f"{settings.tables}: there are no tables yet: `mosq pipeline run` creates them")
    progress.check_tables(settings, about)
    # the files of these versions stay, however long it takes
    with locks.reading(settings.checkpoints / locks.READERS):
        work = Verification(settings, Snapshot.take(settings, about["settings"], about["app"]))
        if begin is not None:
            work.moved = begin(work.size())
        return work.run()


