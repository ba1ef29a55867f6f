"""Prints the selected records of a stream as lines of JSON, of all shards by time, and follows new ones if
requested."""

import heapq
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from mosq.journal.kinds import MESSAGE, NAMES
from mosq.journal.report import when
from mosq.journal.stream import Range, Record, Stream
from mosq.log.json_lines import escaped
from mosq.tools.db.dump import matches
from mosq.tools.db.properties import readable
from mosq.tools.db.show import payload_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_S = 0.2


class Place(NamedTuple):
    """A beginning or end: a sequence number or a time."""

    seq: int | None = None
    time_us: int | None = None


class Choice(NamedTuple):
    """The selected records."""
    begin: Place | None = None  # None: the first existing record
    end: Place | None = None
    shard: int | None = None
    filter: str | None = None
    limit: int | None = None


def place_of(text: str) -> Place:
    """Parse a sequence number or an ISO time. Raises ValueError."""
    if text.isascii() and text.isdigit():
        if int(text) >= 1 << 62:
            raise ValueError(f"`{text}` is too large for a sequence number")
        return Place(seq=int(text))
    try:
        moment = datetime.fromisoformat(text)
        return Place(time_us=max(0, int(moment.timestamp() * 1_000_000)))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"`{text}` is neither a sequence number nor a time such as 2026-11-22T10:00:00Z") from None


def record_json(shard: int, record: Record) -> dict[str, Any]:
    """Return a record as a JSON object."""
    out: dict[str, Any] = {
        "shard": shard,
        "seq": record.seq,
        "time": when(record.time_us),
        "commit_time": when(record.commit_us),
        "kind": NAMES.get(record.kind, record.kind),
        "topic": record.topic or None,
        "client_id": record.client_id or None,
        "username": record.username,
        "qos": record.qos,
        "retain": record.retain,
        "dup": record.dup,
    }
    if record.cluster_node is not None:
        out["cluster_node"] = record.cluster_node
    if record.reason:
        out["reason"] = record.reason
    if record.properties:
        out["properties"] = readable(record.properties)
    if record.payload or record.kind == MESSAGE:
        out.update(payload_json(record.payload))
    return out


class Dump:
    """Print records. `out` gets the lines, `report_missing` gets missing ranges as texts.

    Raises ValueError for an unknown shard.
    """

    def __init__(
        self, stream: Stream, choice: Choice, out: "Callable[[str], object]", report_missing: "Callable[[str], object]"
    ) -> None:
        there = stream.shards()  # first: each of these has a mark, also if a worker begins its part now
        marks = stream.marks()
        if choice.shard is not None and choice.shard not in there:
            raise ValueError(f"{stream.path} has {len(there)} shards: {', '.join(map(str, there))}")
        self.stream, self.choice, self.out, self.report_missing = stream, choice, out, report_missing
        self.left = choice.limit
        shards = there if choice.shard is None else [choice.shard]
        self.at = {shard: self._begin(choice.begin, shard, marks[shard].first_seq) for shard in shards}

    def _begin(self, place: Place | None, shard: int, otherwise: int) -> int:
        if place is None:
            return otherwise
        return place.seq if place.seq is not None else self.stream.seq_at(place.time_us or 0, shard)

    def _rows(self, shard: int) -> "Iterator[tuple[int, int, Record]]":
        def lost(range: Range) -> None:
            self.report_missing(str(range))
            if range.why != "more":
                self.at[shard] = max(self.at[shard], range.hi)

        end = self.choice.end
        to_seq = end.seq if end is not None else None
        if to_seq is not None and to_seq <= self.at[shard]:
            return
        for record in self.stream.read(self.at[shard], to_seq, shard, lost):
            if end is not None and end.time_us is not None and record.time_us >= end.time_us:
                return
            yield record.time_us, shard, record

    def _is_wanted(self, record: Record) -> bool:
        return self.choice.filter is None or matches(self.choice.filter, record.topic)

    def once(self) -> bool:
        """Print the records that exist now. Return False when the limit is reached."""
        for _, shard, record in heapq.merge(*(self._rows(shard) for shard in self.at)):
            self.at[shard] = record.seq + 1
            if self._is_wanted(record):
                self.out(escaped(json.dumps(record_json(shard, record), ensure_ascii=False)))
                if self.left is not None:
                    self.left -= 1
                    if self.left == 0:
                        return False
        return True

    def follow(self, wait: "Callable[[], object]" = lambda: time.sleep(POLL_S)) -> None:
        """Print records until the limit is reached; `wait` is called between two passes."""
        while self.once():
            wait()
