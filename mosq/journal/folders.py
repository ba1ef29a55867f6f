"""Which streams a folder holds, and what lies in a stream's own: names and sizes, without opening anything."""

import re
from pathlib import Path
from typing import NamedTuple

SEGMENT = re.compile(r"(\d{3})-(\d{20})-(\d{20})\.seg")
MARKS = ("mark.a", "mark.b")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FolderError(Exception):
    """What was looked for is not there. The text says what to do."""


class Files(NamedTuple):
    """Of a shard."""

    segments: int
    n_bytes: int


def is_stream(path: Path) -> bool:
    return any((path / name).exists() for name in MARKS) or any(SEGMENT.fullmatch(each.name) for each in path.iterdir())


def streams_below(root: Path) -> dict[str, Path]:
    """By name. What else lies there, such as lost+found, is none, and is not looked into where its name says so."""
    names = sorted(each.name for each in root.iterdir() if NAME.fullmatch(each.name) and each.is_dir())
    return {name: root / name for name in names if is_stream(root / name)}


def streams_in(path: "str | Path") -> list[Path]:
    """The stream in that folder, or those in it: a store's folder has them in `streams`, a persistence_location in the
    stores that it holds."""
    root = Path(path)
    if not root.is_dir():
        raise FolderError(
            f"{root}: no such folder; expected a stream's, a store's (such as mosquitto.db.store), or the "
            "persistence_location"
        )
    if is_stream(root):
        return [root]
    for folder in (root, root / "streams", *sorted(root.glob("*.store/streams"))):
        if found := streams_below(folder) if folder.is_dir() else {}:
            return list(found.values())
    raise FolderError(
        f"{root}: no stream there; a broker writes one with `stream NAME FILTER...` and `persistence true` in its "
        "configuration"
    )


def one_stream(path: "str | Path") -> Path:
    found = streams_in(path)
    if len(found) > 1:
        raise FolderError(
            f"{path}: there are several streams; expected one of {', '.join(str(each) for each in found)}"
        )
    return found[0]


def files_of(path: Path) -> dict[int, Files]:
    """By shard. What is removed meanwhile is not counted."""
    found: dict[int, Files] = {}
    for each in path.iterdir():
        if match := SEGMENT.fullmatch(each.name):
            shard = int(match[1])
            had = found.get(shard, Files(0, 0))
            try:
                found[shard] = Files(had.segments + 1, had.n_bytes + each.stat().st_size)
            except FileNotFoundError:
                continue
    return found
