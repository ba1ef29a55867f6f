"""Writes a stream from Python, for programs without a broker's loop, such as a receiver's spool. The broker itself
appends without Python. One process writes a stream; another one is refused."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq._core import PyJournal

if TYPE_CHECKING:
    import os


def now_us() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1000


class Writer:
    """After `commit` returns, the records are on disk and visible to readers. For one thread."""

    def __init__(self, path: "str | os.PathLike[str]", shards: int = 1, segment_bytes: int = 0) -> None:
        """Open or create the stream. Raises OSError if it cannot be opened or another process writes it."""
        self.path = Path(path)
        # the shortest age: all records that every consumer has done may be deleted (`retain`)
        self._journal = PyJournal(path, shards=shards, segment_bytes=segment_bytes, retain_age_us=1, now_us=now_us())

    def append(                         # parameters: one for each field of a record
        self,
        shard: int,
        topic: str,
        payload: bytes,
        *,
        kind: int = 1,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        client_id: str = "",
        username: str | None = None,
        properties: bytes = b"",
    ) -> int:
        """Append a record; return its sequence number. Raises BlockingIOError if memory is full (call `commit` first),
        ValueError if the record is too large."""
        flags = qos | (4 if retain else 0) | (8 if dup else 0)
        name = None if username is None else username.encode()
        texts = (topic.encode(), client_id.encode(), name, properties, payload)
        return self._journal.append(shard, kind, *texts, flags, 0, now_us())[0]

    def next_seq(self, shard: int) -> int:
        """Return the sequence number of the next record."""
        return self._journal.next_seq(shard)

    def commit(self) -> None:
        """Sync all appended records to disk. Raises OSError if that fails; the records stay in memory and the next call
        that succeeds writes them."""
        self._journal.seal()
        if not (self._journal.write(now_us()) and self._journal.sync() and self._journal.mark(now_us())):
            raise OSError(self._journal.why() or f"{self.path} cannot be written")

    def retain(self) -> None:
        """Delete segments that all consumers have done."""
        self._journal.retain(now_us())

    def close(self) -> None:
        """Close the stream. Records that were not committed are lost."""
        self._journal.close()
