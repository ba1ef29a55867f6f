"""Provide a store that is a list, for `mosq db` without files."""

from collections.abc import Callable
from typing import Any

from mosq._core import record_encode
from mosq.tools.db.state import record_size

Record = tuple[int, int, int, bytes]


class FakeSource:
    path = "fake"

    def __init__(self, records: list[tuple[int, Any]]) -> None:
        """Take the records as [(kind, fields or body), ...]."""
        self.records: list[Record] = []
        lsn = 0
        for kind, fields in records:
            body = fields if isinstance(fields, bytes) else record_encode(kind, fields)
            self.records.append((lsn, kind, 0, body))
            lsn += record_size(len(body))
        self.end = lsn
        self.loss: dict[str, Any] = {}

    def scan(self, give: Callable[[list[Record]], None]) -> dict[str, Any]:
        for at in range(0, len(self.records), 3):
            give(self.records[at:at + 3])
        return {"n": 0, "ranges": [], "bytes": 0, "unsynced_bytes": 0, "torn_bytes": 0, "records": len(self.records), "batches": 1,
                "segments": 1, "unreadable": 0, "foreign": 0, "moved": 0, "tail_lsn": 0, "end_lsn": self.end, "synced_lsn": self.end,
                **self.loss}

    def total_bytes(self) -> int:
        return self.end
