"""Lists the streams of a folder and the files of a stream: names and sizes, without opening files."""

import re
from pathlib import Path
from typing import NamedTuple

from mosq.journal.parts import STRIDE, later_parts, part_folder

SEGMENT = re.compile(r"(\d{3})-(\d{20})-(\d{20})\.seg")
MARKS = ("mark.a", "mark.b")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FolderError(Exception):
    """A stream was not found. The text says what to do."""


class Files(NamedTuple):
    """The files of a shard: number and bytes."""

    segments: int
    n_bytes: int


def is_stream(path: Path) -> bool:
    """Return whether the folder is a stream: it, or a part of it, has a mark or a segment."""
    return _is_part(path) or any(_is_part(part_folder(path, part)) for part in later_parts(path))


def _is_part(path: Path) -> bool:
    return any((path / name).exists() for name in MARKS) or any(SEGMENT.fullmatch(each.name) for each in path.iterdir())


def streams_below(root: Path) -> dict[str, Path]:
    """Return the streams in a folder by name. Other entries, such as lost+found, are skipped by their names."""
    names = sorted(each.name for each in root.iterdir() if NAME.fullmatch(each.name) and each.is_dir())
    return {name: root / name for name in names if is_stream(root / name)}


def streams_in(path: "str | Path") -> list[Path]:
    """Return the stream in that folder, or the streams in it. A store's folder has them in `streams`, a
    persistence_location in its stores. Raises FolderError."""
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
    """Return the only stream in that folder. Raises FolderError."""
    found = streams_in(path)
    if len(found) > 1:
        raise FolderError(
            f"{path}: there are several streams; expected one of {', '.join(str(each) for each in found)}"
        )
    return found[0]


def files_of(path: Path) -> dict[int, Files]:
    """Return the files of each shard. Files that are removed during the call are not counted."""
    found: dict[int, Files] = {}
    for part in (0, *later_parts(path)):
        _count_files(part_folder(path, part), part * STRIDE, found)
    return found


def _count_files(path: Path, first: int, found: dict[int, Files]) -> None:
    for each in path.iterdir():
        if match := SEGMENT.fullmatch(each.name):
            shard = first + int(match[1])
            had = found.get(shard, Files(0, 0))
            try:
                found[shard] = Files(had.segments + 1, had.n_bytes + each.stat().st_size)
            except FileNotFoundError:
                continue
