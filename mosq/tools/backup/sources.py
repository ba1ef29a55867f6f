"""The files of a broker: those that its configuration names, and a consistent set of the files of its store.

The store is a log in segments: the broker appends to the newest one, and it drops the oldest one after its live records
were appended again. `StoreCopy` copies the log up to a moment after its begin. Streams are copied after the store: a
broker drops stream records behind the position that the store names. The marks of consumers are copied before it, so
that no mark names a record that the backup does not contain. The marks of a stream are read before its files are
listed, for the same reason.
"""

import io
import os
import stat

from mosq._core import segment_read, segments
from mosq.auth.dynsec.check import readable_directory
from mosq.config.files import FILE, SECRET_FILES, pointers
from mosq.config.plugin import DYNAMIC_SECURITY, all_plugins
from mosq.tools.backup.archive import CONFIG, STORE, BackupError
from mosq.tools.db.mark import WORKER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from mosq.config.model import Config

STREAMS, CONSUMERS, MARK, INDEX_END = "streams", "consumers", "mark.", ".idx"
TRIES = 100
ROUNDS = 1000
BYTES_FACTOR, BYTES_MORE = 8, 1 << 30
SECRETS = (*SECRET_FILES, "config_file")        # config_file: password hashes of dynamic security


def config_files(path: str, config: "Config", with_secrets: bool) -> tuple[list[str], list[str]]:
    """Return the files of a configuration by absolute path, and those that the backup leaves out, with the reason."""
    found, left_out = [os.path.abspath(path), *_included(path)], []
    for pointer in pointers(config):
        if pointer.kind != FILE:
            left_out.append(f"{pointer.path} (folder of {pointer.option})")
        elif pointer.option in SECRETS and not with_secrets:
            left_out.append(f"{pointer.path} (secret)")
        elif not pointer.readable:
            left_out.append(f"{pointer.path} ({pointer.problem() or 'not a regular file'})")
        else:
            found.append(os.path.abspath(pointer.path))
    readable_directory(config)
    for plugin in all_plugins(config):
        if plugin.kind == DYNAMIC_SECURITY and os.path.isfile(plugin.directory_files()[0]):
            if with_secrets:
                found.append(os.path.abspath(plugin.directory_files()[0]))
            else:
                left_out.append(f"{plugin.directory_files()[0]} (secret)")
        elif plugin.path.endswith(".py"):
            found.append(os.path.abspath(plugin.path))
    return list(dict.fromkeys(found)), list(dict.fromkeys(left_out))


def _included(path: str) -> list[str]:
    """Return the files of `include_dir` lines."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        folders = [line.split(None, 1)[1].strip() for line in file if line.split(None, 1)[:1] == ["include_dir"]
                   and len(line.split(None, 1)) > 1]
    return [os.path.abspath(os.path.join(folder, name)) for folder in folders if os.path.isdir(folder)
            for name in sorted(os.listdir(folder)) if name.endswith(".conf") and name != ".conf"]


def config_name(path: str) -> str:
    """Return the name of a file of the configuration in the archive."""
    return CONFIG + path.lstrip("/")


class OpenFiles:
    """Open files by their name in the archive, in the order in which they are copied."""

    def __init__(self, owner: int | None = None) -> None:
        """`owner`: user id of the files; those of other users are left out. None: any user."""
        self.files: dict[str, tuple[BinaryIO, os.stat_result]] = {}
        self.owner = owner
        self.left_out: list[str] = []

    def add(self, name: str, path: str, at_once: bool = False) -> None:
        """Open a file; read it now if `at_once`. Raises OSError."""
        file = open(path, "rb")                 # noqa: SIM115  # close() closes it
        found = os.fstat(file.fileno())
        if self.owner not in (None, found.st_uid):
            file.close()
            self.left_out.append(path)
            return
        self.files[name] = file, found
        if not stat.S_ISREG(found.st_mode):
            raise BackupError(f"{path} is not a regular file.")
        if at_once:
            with file:
                self.files[name] = io.BytesIO(file.read()), found

    def total_bytes(self) -> int:
        """Return the sum of the sizes."""
        return sum(found.st_size for _, found in self.files.values())

    def close(self) -> None:
        """Close all files."""
        for file, _ in self.files.values():
            file.close()
        self.files.clear()
        self.left_out.clear()


class StoreCopy:
    """Copy the store of a broker that may be running: give the content of segments to `add`, oldest first. Together
    they hold each record that was written before `finish`, and no record without those before it.

    `segment_read` takes the header of a segment first, and then the content from the back to the front. So the content
    of the newest segment has no gap, although the broker appends to it, and it includes the copies of live records
    without which a later header may not drop the oldest segment.

    The list of segments is read again after the newest one was copied. If another segment follows by then, the copy may
    lack the end of its segment, and is made again in the next round. A segment that was dropped before it could be
    copied is not needed: its live records are further on. One that was dropped after it was copied remains in the
    backup; the header of the newest segment names a later beginning of the log, so a start does not read it.
    """

    def __init__(self, folder: str, add: "Callable[[bytes], None]") -> None:
        self.folder, self._add = folder, add
        self._copied: set[int] = set()
        self._bytes = 0
        self._from = 0                          # the newest segment at `note_end`
        self._newest = 0                        # the newest segment of the last list
        self._has_gap = False                   # one behind `_from` was dropped before it was copied

    def begin(self) -> None:
        """Copy all segments but the newest one. Raises OSError."""
        self._copy(segments(self.folder)[0][:-1])

    def note_end(self) -> None:
        """Let the copy contain all that is written from now on until its end, also records that are soon not needed any
        more."""
        found, _ = segments(self.folder)
        self._from = self._newest = found[-1][1] if found else 0

    def _copy(self, found: "list[tuple[int, int, int]]") -> None:
        for slot, number, _ in found:
            content = segment_read(self.folder, slot, number) if number not in self._copied else None
            if content is not None:
                self._add(content)
                self._copied.add(number)
                self._bytes += len(content)
            elif self._from and number not in self._copied and number >= self._from:
                self._has_gap = True

    def finish(self) -> list[str]:
        """Copy the rest. Return the files that are no segments of this store. Raises OSError and BackupError."""
        bytes_max = 0
        for _ in range(ROUNDS):
            found, others = segments(self.folder)
            self._has_gap |= bool(self._from and found and found[0][1] > self._newest)
            self._newest = found[-1][1] if found else 0
            self._copy(found[:-1])
            if not found:
                return _paths(self.folder, others)
            slot, number, _ = found[-1]
            content = segment_read(self.folder, slot, number)
            found, _ = segments(self.folder)
            if (content is not None and found and found[-1][1] == number
                    and self._copied.issuperset(one[1] for one in found[:-1])):
                if self._has_gap:
                    break
                self._add(content)
                return _paths(self.folder, others)
            bytes_max = bytes_max or BYTES_FACTOR * self._bytes + BYTES_MORE
            if self._bytes > bytes_max:
                break
        raise BackupError(f"The broker writes to {self.folder} faster than this command copies. Try again when it has "
                          "less to do, or without compression (a name that does not end with gz).")


def _paths(folder: str, slots: list[int]) -> list[str]:
    return [os.path.join(folder, f"segment.{slot:06}") for slot in slots]


def open_streams(folder: str, into: OpenFiles, marks_only: bool) -> list[str]:
    """Open the marks of consumers, or all other files of the streams; return those that are left out, because they
    belong to another user than the store. The broker's user may write in these folders, so they may have links to files
    that only root may read; a restore would give the content to that user."""
    owner = os.stat(folder).st_uid
    left_out: list[str] = []
    base = os.path.join(folder, STREAMS)
    for stream in _parts(base):
        if marks_only:
            opened = OpenFiles(owner)
            _open_files(folder, os.path.join(base, stream, CONSUMERS), opened)
            into.files.update(opened.files)
            left_out += opened.left_out
            continue
        opened, tries = OpenFiles(owner), TRIES
        while not _open_files(folder, os.path.join(base, stream), opened):
            opened.close()
            tries -= 1
            if tries == 0:
                raise BackupError(f"{base}: retention removed files of {stream} {TRIES} times while they were opened. "
                                  "Try again.")
        into.files.update(opened.files)
        left_out += opened.left_out
    return left_out


def _parts(base: str) -> list[str]:
    """Return the folders of all streams, and of the parts that workers write, by their path below `base`."""
    found: list[str] = []
    for stream in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        path = os.path.join(base, stream)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        found += [stream, *(os.path.join(stream, name) for name in names if name.startswith(WORKER))]
    return found


def _open_files(folder: str, place: str, into: OpenFiles) -> bool:
    """Read the marks in a folder, and open its other files. A file may be created after the folder was listed; no mark
    that was read before names it. Return False if a file was removed before it was opened: then the mark was read too
    early."""
    is_complete = True
    for is_mark in (True, False):
        try:
            names = sorted(os.listdir(place), key=_rank)
        except (FileNotFoundError, NotADirectoryError):
            return True
        for name in names:
            path = os.path.join(place, name)
            if name.startswith(MARK) != is_mark or name == "lock" or name.startswith("."):
                continue
            try:
                if stat.S_ISREG(os.stat(path).st_mode):
                    into.add(f"{STORE}{os.path.relpath(path, folder)}", path, at_once=is_mark)
            except FileNotFoundError:
                is_complete = False
    return is_complete


def _rank(name: str) -> tuple[int, str]:
    """Sort indices before segments: none of them may name what the file behind it lacks."""
    return (0 if name.endswith(INDEX_END) else 1), name
