"""Keep Mosquitto's file beside the store current: write it completely or not at all, in place of the old one.

`python -m mosq.tools.db.mosquitto_save STORE FILE SECURITY:PORT...` is the process that a running broker starts for it.
It writes to stderr why it failed (exit status 1), or how and under which name it kept a file (`foreign NAME`). It must
start quickly, so this module and what it imports do without slow modules of the standard library.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

from mosq.tools.db.mark import (
    EXPORTED,
    FOREIGN,
    IMPORTED,
    TAKEN_OVER,
    Mark,
    identity,
    keep,
    read_mark,
    sync_folder,
    write_mark,
)
from mosq.tools.db.mosquitto_export import ALONE, MosquittoExport, Written
from mosq.tools.db.partly import Spread
from mosq.tools.db.store import StoreError, reason, sources_of, worker_folders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mosq.tools.db.read import Progress
    from mosq.tools.db.store import Source

NEW = ".new"  # end of the name while the file is being written
KEPT = "kept"  # a file that mosq did not write gets this ending before it is replaced
BUFFER_BYTES = 1 << 20
NICE = 10


class TooLongError(Exception):
    """The file could not be written in the time that there was."""


def write_file(sources: "Mapping[int, Source]", path: str, ports: "Mapping[int, int]",
               progress: "Progress | None" = None, spread: Spread = ALONE) -> Written:
    """Write a new file to `PATH.new`; it is on the disk when this returns. See MosquittoExport. Raises StoreError,
    OSError and what `progress` raises; then there is no new file."""
    part = path + NEW
    try:
        os.unlink(part)  # left by a process that was killed
    except FileNotFoundError:
        pass
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=BUFFER_BYTES) as out:
            written = MosquittoExport(sources, out, progress, ports, spread=spread).run()
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        try:
            os.unlink(part)
        except OSError:
            pass
        raise
    return written


def put_in_place(path: str) -> None:
    """Make the new file the current one."""
    os.rename(path + NEW, path)
    sync_folder(os.path.dirname(path) or ".")


def save(store: str, path: str, ports: "Mapping[int, int]", within_s: float | None = None,
         key: bytes = b"") -> tuple[Written, str, str]:
    """Write the content of a store to Mosquitto's file, and mark the store. `key`: names the worker of a client id, if
    these are the stores of workers. A file there that mosq did not write is
    kept under another name. So is one that mosq has imported; but if an older file has that name and all of the one was
    imported, nothing is lost without it, and files do not accumulate.

    Return what was written, the name of the kept file or "", and TAKEN_OVER or FOREIGN. Raises StoreError, OSError, and
    TooLongError after `within_s` seconds; then the old file is still there.
    """
    end_s = None if within_s is None else time.monotonic() + within_s

    def progress(_bytes: int) -> None:
        if end_s is not None and time.monotonic() > end_s:
            raise TooLongError

    found = sources_of(store)
    spread = ALONE if 0 in found else Spread(len(worker_folders(store)), key)
    sources = {max(0, number - 1): source for number, source in found.items()}
    written = write_file(sources, path, ports, progress, spread)
    new, old, mark = identity(path + NEW), identity(path), read_mark(store, path)
    assert new is not None
    kept, how = "", TAKEN_OVER if mark is not None and old in mark.files else FOREIGN
    if old is not None and not (mark is not None and how == TAKEN_OVER and _is_spare(path, mark)):
        kept = keep(path, KEPT)
    # A crash between the two leaves a file that the mark knows.
    write_mark(store, Mark(path, [new] if old is None else [new, old], EXPORTED, written.end_lsn))
    put_in_place(path)
    return written, kept, how


def _is_spare(path: str, mark: Mark) -> bool:
    """Return whether a file that the mark knows need not be kept when it is replaced."""
    return mark.how == EXPORTED or (mark.how == IMPORTED and os.path.lexists(f"{path}.{KEPT}"))


def main(arguments: list[str], key: bytes = b"") -> int:
    """Do the work of the process; return its exit status."""
    store, path, *ports = arguments
    os.nice(NICE)  # the broker comes first
    try:
        pairs = [one.partition(":") for one in ports]
        _, kept, how = save(store, path, {int(number): int(port) for number, _, port in pairs}, key=key)
    except (StoreError, OSError) as error:
        sys.stderr.write(reason(error))
        return 1
    if kept:
        sys.stderr.write(f"{how} {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
