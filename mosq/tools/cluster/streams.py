"""Copies the streams of a cluster from Redis into a folder, where programs read them as those of a broker with several
workers (docs/journal.md).

    the store of worker W in Redis                  FOLDER/STREAM/worker.W/
    segments, indexes, mark                   ->    the same files
    the mark of this copy, as a consumer      <-    the least of what is copied and of the consumers' marks

A part of the copy is whole at each moment: its mark is replaced when everything below it is on the disk, files are
removed after that, and the broker may remove only what is below the mark of the copy. A file in Redis only grows, and a
reader never passes the mark, so a copy may end anywhere.
"""

import fcntl
import os
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mosq import _core
from mosq.cluster.scripts import FILES, STREAMS_FOLDER, keys_of_store, others_of
from mosq.journal.parts import part_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Call = Callable[..., Any]       # sends a command to Redis and returns its reply; raises OSError

PART_BYTES = 1 << 20            # of one read from Redis
HEAD_BYTES = 4096               # of a segment (docs/journal.md); its salt differs in each
MARK = "mark.a"                 # the copy has only this one, which is replaced
MARKS = ("mark.a", "mark.b")
KINDS = (".seg", ".idx")
STREAM = re.compile(r"[A-Za-z0-9_-]+")          # a name from Redis becomes that of a folder
FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class CopyError(Exception):
    """This folder cannot have the copy. The text says why."""


class RemoteFile(NamedTuple):
    """A file in Redis at the moment of the listing. `content`: the key; `mark`: the bytes of a mark."""

    name: str
    content: str
    length: int
    mark: bytes


class Copied(NamedTuple):
    """The result of one round."""

    n_bytes: int
    behind: list[str]               # parts that Redis has less far than the copy


class StreamCopy:
    """The copy of all streams of a cluster, which one process writes. `name`: of this copy among the consumers;
    `stores`: the names of the stores, by number of the worker. Raises CopyError and OSError."""

    def __init__(self, call: "Call", stores: dict[int, str], folder: Path, name: str) -> None:
        self._call, self._stores, self._folder, self._name = call, stores, folder, name
        self._floors: dict[tuple[int, str], list[int]] = {}     # what Redis has of the own mark
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._lock = (folder / ".lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise CopyError(f"another process copies streams into {folder}") from None

    def close(self) -> None:
        """Let another process write the copy."""
        self._lock.close()

    def copy(self) -> Copied:
        """Copy what Redis has now. Raises CopyError, and OSError if Redis or the disk fails."""
        n_bytes, behind = 0, []
        for worker in self._stores:
            for stream, files in self._listing(worker).items():
                copied = self._part(worker, stream, files)
                if copied is None:
                    behind.append(f"{stream} of worker {worker}")
                else:
                    n_bytes += copied
        return Copied(n_bytes, behind)

    def _listing(self, worker: int) -> dict[str, list[RemoteFile]]:
        """Return the files of each stream that a worker has."""
        _, names, _, contents = keys_of_store(self._stores[worker])
        found: dict[str, list[RemoteFile]] = {}
        for path, content, length, mark in self._call("EVAL", FILES, 1, names, contents, f"{STREAMS_FOLDER}/"):
            stream, _, name = path.decode("utf-8", "replace").removeprefix(f"{STREAMS_FOLDER}/").partition("/")
            if not (STREAM.fullmatch(stream) and FILE.fullmatch(name)):
                raise CopyError(f"{self._stores[worker]} has a file {path!r}, which no worker of mosq has written")
            found.setdefault(stream, []).append(RemoteFile(name, content.decode(), int(length), mark))
        return found

    def _part(self, worker: int, stream: str, files: list[RemoteFile]) -> int | None:
        """Copy a part of a stream. Return the number of bytes; None if the copy has more than Redis."""
        folder = part_folder(self._folder / stream, worker)
        (folder / "consumers").mkdir(mode=0o755, parents=True, exist_ok=True)
        newest = _newest_mark(files)
        if newest is None:
            return 0                    # the worker has not finished its first start
        (remote, mark), local = newest, _marks_in(folder)
        if local is not None and remote["stream_id"] != local["stream_id"]:
            raise CopyError(f"{folder} has another stream of this name. Move {self._folder / stream} away, or copy "
                            "into another folder")
        if local is not None and any(new["seq"] < old["seq"]
                                     for new, old in zip(remote["shards"], local["shards"], strict=False)):
            return None
        segments = [file for file in files if file.name.endswith(KINDS)]
        n_bytes = sum(self._file(folder / file.name, file) for file in segments)
        _sync_folder(folder)
        if local is None or remote["generation"] != local["generation"]:
            _replace(folder / MARK, mark)
        names = {file.name for file in segments}
        for old_file in folder.iterdir():
            if old_file.name.endswith(KINDS) and old_file.name not in names:
                old_file.unlink()
        self._note(worker, stream, [shard["seq"] for shard in remote["shards"]], folder)
        return n_bytes

    def _file(self, path: Path, file: RemoteFile) -> int:
        """Copy what a file has more in Redis. Return the number of bytes. Raises OSError if Redis has removed it."""
        length = path.stat().st_size if path.exists() else 0
        if length == file.length:
            return 0
        if length and not self._continues(path, file, length):
            path.unlink()
            length = 0
        with path.open("r+b" if length else "wb") as out:
            out.seek(length)
            at = length
            while at < file.length:
                part = self._call("GETRANGE", file.content, at, min(at + PART_BYTES, file.length) - 1)
                if not part:
                    raise OSError(f"{file.name} was removed from Redis while it was read")
                out.write(part)
                at += len(part)
            out.flush()
            os.fsync(out.fileno())
        return file.length - length

    def _continues(self, path: Path, file: RemoteFile, length: int) -> bool:
        """Return whether the file in Redis begins with the copy. After a failover that has lost the last operations, a
        file of another process may have the same name."""
        head = min(HEAD_BYTES, length)
        with path.open("rb") as copied:
            return length < file.length and copied.read(head) == self._call("GETRANGE", file.content, 0, head - 1)

    def _note(self, worker: int, stream: str, copied: list[int], folder: Path) -> None:
        """Let the broker know which records it may remove: those that are copied, and that the consumers have done."""
        floors = list(copied)
        for found in _core.consumers(folder).values():
            done = [] if found is None else found[1]
            floors = [min(floor, done[shard] if shard < len(done) else 0) for shard, floor in enumerate(floors)]
        if self._floors.get((worker, stream)) != floors:
            self._call("HSET", others_of(self._stores[worker]), _field(stream, self._name),
                       _core.consumer_mark(floors, time.time_ns() // 1000))
            self._floors[worker, stream] = floors


def forget(call: "Call", stores: dict[int, str], name: str) -> int:
    """Remove the marks of a copy, so that the broker waits for it no more. Return their number. Raises OSError."""
    n = 0
    for store in stores.values():
        key = others_of(store)
        for field in call("HKEYS", key):
            text = field.decode("utf-8", "replace")
            stream = text.removeprefix(f"{STREAMS_FOLDER}/").partition("/")[0]
            if text == _field(stream, name):
                n += call("HDEL", key, field)
    return n


def _field(stream: str, name: str) -> str:
    return f"{STREAMS_FOLDER}/{stream}/consumers/{name}"


def _newest_mark(files: list[RemoteFile]) -> "tuple[_core.Marks, bytes] | None":
    """Return the newest valid mark and its bytes; None: there is none."""
    found = None
    with TemporaryDirectory() as folder:        # the code that reads marks takes a folder
        for file in files:
            if file.name in MARKS:
                (Path(folder) / MARK).write_bytes(file.mark)
                marks = _marks_in(Path(folder))
                if marks is not None and (found is None or marks["generation"] > found[0]["generation"]):
                    found = marks, file.mark
    return found


def _marks_in(folder: Path) -> "_core.Marks | None":
    """Return the mark of a part; None: it has no valid one. Raises OSError."""
    try:
        return _core.marks(folder)
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file by a new one that is on the disk."""
    new = path.with_name(f".{path.name}")
    with new.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
