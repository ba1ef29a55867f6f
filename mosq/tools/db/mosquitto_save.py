"""Keep Mosquitto's file beside the store current: write it completely or not at all, in place of the old one.

`python -m mosq.tools.db.mosquitto_save STORE FILE SECURITY:PORT...` is the process that a running broker starts for it.
It writes to stderr why it failed (exit status 1), or the name of the file that it kept. It must start quickly, so this
module and what it imports do without slow modules of the standard library.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from mosq.tools.db.mark import EXPORTED, Mark, identity, keep, read_mark, sync_folder, write_mark
from mosq.tools.db.mosquitto_export import MosquittoExport, Written
from mosq.tools.db.store import StoreError, StoreSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mosq.tools.db.read import Progress

NEW = ".new"  # end of the name while the file is being written
KEPT = "kept"  # a file that mosq did not write gets this ending before it is replaced
BUFFER_BYTES = 1 << 20
NICE = 10


class TooLongError(Exception):
    """The file could not be written in the time that there was."""


def write_file(source: Any, path: str, ports: "Mapping[int, int]", progress: "Progress | None" = None) -> Written:
    """Write a new file to `PATH.new`; it is on the disk when this returns. Raises StoreError, OSError and what
    `progress` raises; then there is no new file."""
    part = path + NEW
    try:
        os.unlink(part)  # left by a process that was killed
    except FileNotFoundError:
        pass
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=BUFFER_BYTES) as out:
            written = MosquittoExport(source, out, progress, ports).run()
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


def save(store: str, path: str, ports: "Mapping[int, int]", within_s: float | None = None) -> tuple[Written, str]:
    """Write the content of a store to Mosquitto's file, and mark the store. A file there that mosq did not write is
    kept under another name.

    Return what was written, and the name of the kept file or "". Raises StoreError, OSError, and TooLongError after
    `within_s` seconds; then the old file is still there.
    """
    end_s = None if within_s is None else time.monotonic() + within_s

    def progress(_bytes: int) -> None:
        if end_s is not None and time.monotonic() > end_s:
            raise TooLongError

    written = write_file(StoreSource(store), path, ports, progress)
    new, old, mark = identity(path + NEW), identity(path), read_mark(store, path)
    assert new is not None
    kept = ""
    if old is not None and (mark is None or mark.how != EXPORTED or old not in mark.files):
        kept = keep(path, KEPT)
    # A crash between the two leaves a file that the mark knows.
    write_mark(store, Mark(path, [new] if old is None else [new, old], EXPORTED, written.end_lsn))
    put_in_place(path)
    return written, kept


def main(arguments: list[str]) -> int:
    """Do the work of the process; return its exit status."""
    store, path, *ports = arguments
    os.nice(NICE)  # the broker comes first
    try:
        pairs = [one.partition(":") for one in ports]
        _, kept = save(store, path, {int(number): int(port) for number, _, port in pairs})
    except (StoreError, OSError) as error:
        sys.stderr.write(reason(error))
        return 1
    sys.stderr.write(kept)
    return 0


def reason(error: Exception) -> str:
    """Return the text of an error, with the file for an OSError."""
    if isinstance(error, OSError) and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
