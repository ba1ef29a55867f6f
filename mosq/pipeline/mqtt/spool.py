"""Keep received messages before they are acknowledged: a journal stream with a shard for each lane.

Spark's offsets are the sequence numbers of this stream.

Each message has a key. A message that the broker sends again (DUP, after a connection was lost) gets the key that it
had before. The broker has at most `window` unacknowledged messages in a session, and sends them again in their order
with the same packet identifiers [v5 4.4.0-1]. So a repeated message is among the last `window` of its lane, and has the
same identifier and content. Cost: one digest per message, and `window` digests per lane in memory.
"""

import fcntl
import hashlib
import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from mosq import _core
from mosq.journal.kinds import GAP, MESSAGE
from mosq.journal.stream import Range, Stream
from mosq.journal.writer import Writer
from mosq.pipeline import MosqPipelineError

SEGMENT_BYTES = 16 << 20
READER = "spark"


class SpoolError(MosqPipelineError):
    """State that the spool is open in another process, or cannot be opened."""


class Received(NamedTuple):
    """Hold a received message."""

    lane: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: bytes
    key: str | None  # key that the publisher gave


def _digest(topic: str, payload: bytes, properties: bytes) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for part in (topic.encode(), payload, properties):
        hashed.update(len(part).to_bytes(4, "little"))
        hashed.update(part)
    return hashed.digest()


class Spool:
    """Hold the spool of one query: a journal stream, and the state of the lanes' sessions.

    Raises SpoolError if another query has it.
    """

    def __init__(self, folder: Path, name: str, lanes: int, window: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self._state = folder / f"{name}.json"
        self._window = window
        # one query reads everything in the folder
        self._lock = (folder / ".lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._writer = Writer(self.path, lanes, SEGMENT_BYTES)
        except OSError as error:
            self._lock.close()
            raise SpoolError(
                f"the spool {folder} cannot be opened: {error}. Only one query may use a spool: stop the other one, "
                "or give each its own spool"
            ) from error
        stream = Stream(self.path)
        self._writer.commit()
        if stream.consumer(READER) is None:  # registered before retention may delete anything
            stream.put_consumer(READER, [0] * lanes)
        self._id = _core.marks(self.path)["stream_id"][:12]
        # for each lane, the last messages by packet identifier: digest and key
        self._last: list[OrderedDict[int, tuple[bytes, str]]] = [self._tail(stream, lane) for lane in range(lanes)]

    # ---- lanes and their sessions at the broker

    def sessions(self) -> tuple[set[int], set[int]]:
        """Return the lanes whose sessions the broker has, and the lanes whose sessions it has lost."""
        try:
            state = json.loads(self._state.read_text())
            return set(state["established"]), set(state["lost"])
        except FileNotFoundError:
            return set(), set()
        except (ValueError, KeyError, TypeError) as error:
            raise MosqPipelineError(
                f"{self._state} is damaged ({error!r}): remove it; then the lanes subscribe again, and it is unknown "
                "whether the broker lost their sessions in between"
            ) from error

    def put_sessions(self, established: set[int], lost: set[int]) -> None:
        new = self._state.with_suffix(".new")
        with new.open("w") as out:
            out.write(json.dumps({"established": sorted(established), "lost": sorted(lost)}))
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._state)

    # ---- messages

    def _tail(self, stream: Stream, lane: int) -> OrderedDict[int, tuple[bytes, str]]:
        mark = stream.marks()[lane]
        last: OrderedDict[int, tuple[bytes, str]] = OrderedDict()
        lost: list[Range] = []
        for record in stream.read(max(mark.first_seq, mark.seq - self._window), mark.seq, lane, lost.append):
            if record.kind == MESSAGE and record.qos and record.username:
                self._remember(last, int(record.username), _digest(record.topic, record.payload, record.properties),
                record.client_id)
        return last

    def _remember(self, last: OrderedDict[int, tuple[bytes, str]], packet_id: int, digest: bytes, key: str) -> None:
        last.pop(packet_id, None)
        last[packet_id] = (digest, key)
        if len(last) > self._window:
            last.popitem(last=False)

    def append(self, message: Received) -> None:
        """Append a message; it is on the disk after `commit`."""
        lane, last = message.lane, self._last[message.lane]
        key = message.key or f"{self._id}-{lane}-{self._writer.next_seq(lane)}"
        if message.qos:
            digest = _digest(message.topic, message.payload, message.properties)
            had = last.get(message.packet_id)
            if message.dup and had is not None and had[0] == digest:
                key = had[1]
            self._remember(last, message.packet_id, digest, key)
        self._append(
            lane,
            message.topic,
            message.payload,
            qos=message.qos,
            retain=message.retain,
            dup=message.dup,
            client_id=key,
            username=str(message.packet_id),
            properties=message.properties,
        )

    def append_gap(self, lane: int, why: str) -> None:
        """Append a row that marks an unknown number of lost messages."""
        self._append(lane, "", json.dumps({"lost": None, "why": why}).encode(), kind=GAP)

    def _append(self, lane: int, topic: str, payload: bytes, **more: "int | bool | str | bytes") -> None:
        try:
            self._writer.append(lane, topic, payload, **more)  # type: ignore[arg-type]
        except BlockingIOError:
            self.commit()
            self._writer.append(lane, topic, payload, **more)  # type: ignore[arg-type]

    def commit(self) -> None:
        """Sync all appended messages. Raises MosqPipelineError if they cannot be written."""
        try:
            self._writer.commit()
        except OSError as error:
            raise MosqPipelineError(
                f"the spool {self.path} cannot be written: {error}. No message was acknowledged to the broker, so none "
                "is lost: free some space, and start the query again"
            ) from error

    def retain(self) -> None:
        self._writer.retain()

    def close(self) -> None:
        self._writer.close()
        self._lock.close()
