"""Keep inputs that the fuzzer has found: one file for each target in tests/fuzz/corpora, at most a few hundred kB in all.

A file is compressed by zlib and holds for each input its length (2 bytes, big-endian) and its bytes, the shortest first.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

FOLDER = Path(__file__).with_name("corpora")
INPUT_MAX = 1024                # bytes of an input
FILE_MAX = 12_000               # bytes of all inputs of a target, after compression


def read(target: str) -> list[bytes]:
    """Return the packed inputs of a target; none if it has no file. Raises ValueError if the file is damaged."""
    path = FOLDER / f"{target}.zlib"
    if not path.exists():
        return []
    try:
        content = zlib.decompress(path.read_bytes())
    except zlib.error as error:
        raise ValueError(f"{path.name}: {error}") from error
    found, at = [], 0
    while at < len(content):
        n = int.from_bytes(content[at:at + 2], "big")
        if at + 2 + n > len(content):
            raise ValueError(f"{path.name}: the last input is cut")
        found.append(content[at + 2:at + 2 + n])
        at += 2 + n
    return found


def unpack(target: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for content in read(target):
        (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


def pack(target: str, inputs: list[bytes]) -> tuple[int, int]:
    """Write the file of a target; return the number of inputs that fit, and the size of the file in bytes."""
    FOLDER.mkdir(exist_ok=True)
    chosen = sorted({one for one in inputs if len(one) <= INPUT_MAX}, key=lambda one: (len(one), one))
    while True:
        packed = zlib.compress(b"".join(len(one).to_bytes(2, "big") + one for one in chosen), 9)
        if len(packed) <= FILE_MAX:
            (FOLDER / f"{target}.zlib").write_bytes(packed)
            return len(chosen), len(packed)
        del chosen[max(1, len(chosen) * 9 // 10):]
