"""Test which stores in Redis are taken for damaged (mosq/server/node/store.py)."""

from __future__ import annotations

import pytest

from mosq.server.node.store import _missing

LOCK, SEGMENT, STREAM = b"/store/lock", b"/store/segment.000001", b"/store/streams/s/mark.a"


class Fake:
    """A Redis with the keys of one store. `lengths`: of contents."""

    def __init__(self, number: bytes | None, names: list[bytes], lengths: dict[str, int]) -> None:
        self.number, self.names, self.lengths = number, names, lengths

    def call(self, command: str, key: str, *_: object) -> object:
        if command == "HGET":
            return self.number
        return self.names if command == "HGETALL" else self.lengths.get(key, 0)


@pytest.mark.parametrize(("number", "names", "lengths", "missing"), [
    (None, [], {}, ""),
    (b"0", [], {}, ""),
    (b"1", [LOCK, b"1"], {}, ""),
    (b"1", [], {}, "mosq:{s}:names"),
    (b"9", [LOCK, b"1", SEGMENT, b"3"], {"mosq:{s}:f:3": 5}, ""),
    (b"9", [LOCK, b"1", SEGMENT, b"3"], {}, "mosq:{s}:f:3"),
    (b"5", [LOCK, b"1", SEGMENT, b"3"], {}, ""),                                        # its process ended during its first start
    (b"9", [LOCK, b"1", STREAM, b"2"], {"mosq:{s}:f:2": 5}, ""),                        # streams are opened before the first segment
    (b"12", [LOCK, b"1", STREAM, b"2", SEGMENT, b"3"], {"mosq:{s}:f:2": 5}, ""),
    (b"30", [LOCK, b"1", STREAM, b"2", SEGMENT, b"3"], {"mosq:{s}:f:2": 5}, "mosq:{s}:f:3"),
])
def test_a_store_lacks_its_names_or_the_content_of_all_segments(number: bytes | None, names: list[bytes], lengths: dict[str, int], missing: str) -> None:
    assert _missing(Fake(number, names, lengths), "s") == missing      # type: ignore[arg-type]
