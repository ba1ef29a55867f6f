"""Writes a backup: of a running broker too, without a lock and without its help."""

import errno
import fcntl
import io
import os
import stat
import time

from mosq.config.errors import ConfigError
from mosq.config.parser import load_config
from mosq.server import layout
from mosq.server.storage import store_root
from mosq.tools.backup.archive import CONFIG, FORMAT, FORMAT_WORKERS, GZIP, STORE, BackupError, Writer
from mosq.tools.backup.sources import OpenFiles, StoreCopy, config_files, config_name, open_streams
from mosq.tools.db.mark import WORKER, sync_folder
from mosq.tools.db.store import LOCK, SEGMENT, StoreSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # label, bytes of all files -> function for the bytes of each step
    Progress = Callable[[str, int], Callable[[int], None]]

PARTIAL = ".partial"


class Saved:
    """The result of a backup."""

    def __init__(self, members: "dict[str, dict[str, Any]]", left_out: list[str], store: str | None,
                 unfinished: list[str]) -> None:
        self.members, self.left_out, self.store = members, left_out, store
        self.unfinished = unfinished            # what killed backups have left beside the archive


class Stores:
    """The stores of a broker: one in the folder, or one for each worker."""

    def __init__(self, folder: str) -> None:
        """Raises BackupError and OSError."""
        self.folder = folder
        names = os.listdir(folder) if os.path.isdir(folder) else []
        self.layout = _layout_of(folder, names)
        if self.layout is not None:
            self.parts = [f"{WORKER}{i + 1}" for i in range(self.layout.workers)]
        else:
            self.parts = [""] if any(name.startswith(SEGMENT) for name in names) else []

    def check(self) -> None:
        """Raise BackupError if a start has divided the stores since: then the copy has parts of both."""
        now = Stores(self.folder)
        if (now.layout and now.layout.stores) != (self.layout and self.layout.stores):
            raise BackupError(f"The stores in {self.folder} were divided for another number of workers while they were "
                              "copied. Try again.")


def _layout_of(folder: str, names: list[str]) -> "layout.Layout | None":
    if any(name in (layout.DIVIDED, layout.BEFORE, layout.PLACING) for name in names):
        raise BackupError(f"The stores in {folder} are being divided for another number of workers. Try again when the "
                          "broker has started; if it does not run, start it.")
    try:
        return layout.read_layout(folder)
    except OSError as error:
        raise BackupError(str(error)) from None


def save(conf: str, target: str, with_secrets: bool, force: bool, progress: "Progress") -> Saved:
    """Write the archive `target` (mode 0600) of the broker with the configuration `conf`. Raises BackupError and
    ConfigError; then there is no archive, and an older one of that name is unchanged."""
    try:
        config = load_config(conf)
        if config.cluster is not None:
            raise BackupError(f"{conf} is that of a node of a cluster, whose stores are in Redis: back up the "
                              "append-only file of Redis.")
        stores = Stores(os.path.abspath(store_root(config)))
        files, left_out = config_files(conf, config, with_secrets)
    except OSError as error:
        raise BackupError(f"{error.filename or conf}: {error.strerror}.") from None
    if os.path.lexists(target) and not force:
        raise BackupError(f"{target} exists. Choose another name, or give --force to replace it.")
    partial = target + PARTIAL
    fd = -1
    is_kept = False
    try:
        fd = _open_partial(partial)
        with open(fd, "wb", closefd=False) as out:
            writer = Writer(out, target.endswith("gz"))
            left_out += _write(writer, conf, files, stores, progress)
            out.flush()
            os.fsync(fd)
        os.rename(partial, target)
        is_kept = True
        sync_folder(os.path.dirname(os.path.abspath(target)))
    except OSError as error:
        advice = ("Free some space, or choose another folder." if error.errno in (errno.ENOSPC, errno.EDQUOT) else
                  "The running broker goes on.")
        raise BackupError(f"The backup is not written: {error.filename or target}: {error.strerror or error}. {advice}"
                          ) from None
    finally:
        if fd >= 0 and not is_kept:
            _remove(partial)
        if fd >= 0:
            os.close(fd)                # also gives the lock back
    return Saved(writer.members, left_out, stores.folder if stores.parts else None, _unfinished(target))


def _open_partial(path: str) -> int:
    """Open and lock the file that is being written, and empty what a killed backup left in it. Raises OSError, and
    BackupError if another backup writes it, or if it is not this user's alone."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                     stat.S_IRUSR | stat.S_IWUSR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or found.st_nlink > 1 or not stat.S_ISREG(found.st_mode):
                raise BackupError(f"{path} belongs to another user or has another name too, so the archive would not "
                                  "be secret. Remove it, or choose another folder.")
            if os.path.lexists(path) and os.path.samestat(os.lstat(path), found):
                os.fchmod(fd, stat.S_IRUSR | stat.S_IWUSR)
                os.ftruncate(fd, 0)
                return fd
        except BlockingIOError:
            os.close(fd)
            raise BackupError(f"Another backup writes {path} now. Choose another name, or wait.") from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)                    # another backup has put it in place


def _unfinished(target: str) -> list[str]:
    """Return the files beside the archive that killed backups of other names have left: no process has their lock."""
    folder = os.path.dirname(target)
    try:
        names = [name for name in sorted(os.listdir(folder or ".")) if name.endswith(PARTIAL)]
    except OSError:
        return []
    return [path for name in names if _is_unfinished(path := os.path.join(folder, name))]


def _is_unfinished(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        first = os.pread(fd, len(GZIP), 0)
        return stat.S_ISREG(os.fstat(fd).st_mode) and first in (b"", GZIP, CONFIG.encode()[:len(GZIP)])
    except OSError:                     # a backup writes it now
        return False
    finally:
        os.close(fd)


def _write(writer: Writer, conf: str, files: list[str], stores: Stores, progress: "Progress") -> list[str]:
    """Write all members of an archive; return the files of the store that are left out."""
    folder = stores.folder if stores.parts else None
    opened = OpenFiles()
    left_out: list[str] = []
    foreign: list[str] = []
    try:
        for path in files:
            opened.add(config_name(path), path)
        if folder is not None:
            foreign = open_streams(folder, opened, marks_only=True)
        _add_all(writer, opened, progress("Copying", opened.total_bytes()))
        if folder is not None:
            left_out = _write_stores(writer, stores, progress)
            foreign += open_streams(folder, opened, marks_only=False)
            _add_all(writer, opened, progress("Copying streams", opened.total_bytes()))
            stores.check()
        writer.end({"format": FORMAT if stores.layout is None else FORMAT_WORKERS, "store": folder,
                    "made_at": time.strftime("%FT%TZ", time.gmtime()), "config": os.path.abspath(conf)})
    finally:
        opened.close()
    return [*(f"{path} (damaged, or of another store)" for path in left_out),
            *(f"{path} (belongs to another user than the store)" for path in foreign)]


def _add_all(writer: Writer, opened: OpenFiles, step: "Callable[[int], None]") -> None:
    for name, (file, found) in opened.files.items():
        writer.add(name, file, step, found)
    opened.close()


def _write_stores(writer: Writer, stores: Stores, progress: "Progress") -> list[str]:
    """Write the segments of all stores, with new names in log order; return the files that are left out.

    Most of each store is copied first, the ends of all behind one another. So the moments at which the copies end are
    as close together as possible, and each copy has all that its worker wrote since the first of them (`note_end`):
    what a start needs to know which messages had reached which worker (mosq/tools/db/partly.py)."""
    folders = [os.path.join(stores.folder, part) for part in stores.parts]
    step = progress("Copying the store", sum(StoreSource(one).total_bytes() for one in folders))
    copies = [_copy_of(writer, folder, f"{STORE}{part}/" if part else STORE, step)
              for folder, part in zip(folders, stores.parts, strict=True)]
    left_out: list[str] = []
    if len(copies) > 1:
        for copy in copies:
            copy.begin()
        for copy in copies:
            copy.note_end()
    for copy in copies:
        left_out += copy.finish()
    if stores.layout is not None:
        for name in (layout.FILE, *(f"{part}/{layout.OF}" for part in stores.parts)):
            with open(os.path.join(stores.folder, name), "rb") as file:
                writer.add(f"{STORE}{name}", file, lambda count: None)
    return left_out


def _copy_of(writer: Writer, folder: str, prefix: str, step: "Callable[[int], None]") -> StoreCopy:
    lock = os.path.join(folder, LOCK)
    found = os.stat(lock if os.path.exists(lock) else folder)
    owner = os.stat_result((stat.S_IFREG | 0o600, *found[1:7], *[int(time.time())] * 3))
    number = 0

    def add(content: bytes) -> None:
        nonlocal number
        number += 1
        writer.add(f"{prefix}{SEGMENT}{number:06}", io.BytesIO(content), step, owner)

    return StoreCopy(folder, add)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


__all__ = ["BackupError", "ConfigError", "Saved", "save"]
