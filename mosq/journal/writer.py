"""A stream written from Python: for what has no broker's loop, as the spool of a receiver. Not for the broker, which
appends without Python. One process writes a stream; whoever else tries is refused."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cext.journal.journal_api import PyJournal

if TYPE_CHECKING:
    import os


def now_us() -> int:
    return time.time_ns() // 1000


class Writer:
    """Records are there for readers, and safe, when `commit` has returned. For one thread."""

    def __init__(self, path: "str | os.PathLike[str]", shards: int = 1, segment_bytes: int = 0) -> None:
        """OSError: it cannot be opened, or somebody else writes it."""
        self.path = Path(path)
        # as old as can be: what all consumers are done with may go (`retain`)
        self._face = PyJournal(path, shards=shards, segment_bytes=segment_bytes, retain_age_us=1, now_us=now_us())

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
        """-> its number. BlockingIOError: more waits than may be in memory, `commit` first; ValueError: it is too "
        "large"""
        flags = qos | (4 if retain else 0) | (8 if dup else 0)
        name = None if username is None else username.encode()
        texts = (topic.encode(), client_id.encode(), name, properties, payload)
        return self._face.append(shard, kind, *texts, flags, 0, now_us())[0]

    def next_seq(self, shard: int) -> int:
        return self._face.next_seq(shard)

    def commit(self) -> None:
        """All that was appended is on the disk. OSError: it is not; what waits is written by the next call that can."""
        self._face.seal()
        if not (self._face.write(now_us()) and self._face.sync() and self._face.mark(now_us())):
            raise OSError(self._face.why() or f"{self.path} cannot be written")

    def retain(self) -> None:
        """Drops segments that all consumers are done with."""
        self._face.retain(now_us())

    def close(self) -> None:
        """What was not committed is gone."""
        self._face.close()
