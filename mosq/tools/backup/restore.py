"""Puts the content of a backup in place, while no broker runs.

The files are written to a folder beside the store, checked, and put in place by one exchange of two folders. A kill
at any moment leaves either the old store or the new one. The old one stays, under a name with the time.
"""

import ctypes
import errno
import grp
import os
import pwd
import shutil
import time

from mosq.server import layout
from mosq.tools.backup.archive import CONFIG, STORE, BackupError, Reader
from mosq.tools.db.mark import BEFORE_RESTORE, WORKER, sync_folder
from mosq.tools.db.store import LOCK, StoreError, StoreSource, locked, segment_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

STAGE, KEPT = ".restoring", BEFORE_RESTORE
AT_FDCWD, EXCHANGE = -100, 2            # renameat2(2)
ID_END = (1 << 32) - 1                  # user and group ids are below it


def restore_store(reader: Reader, folder: str, owner: tuple[int, int] | None, force: bool,
                  step: "Callable[[int], None]") -> str | None:
    """Write the store of a backup to `folder`; return where the old one is, None without an old one. `owner`: user
    and group of the files, if root restores; None: those of the old store or of the backup. Raises BackupError."""
    names = reader.below(STORE)
    if not names:
        raise BackupError(f"{reader.path} contains no store: its broker had no persistence, or had "
                          "stored nothing.")
    stage = folder + STAGE
    held: "list[Any]" = []
    base = None
    try:
        os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
        if os.path.isdir(folder):
            is_store = bool(segment_files(folder)) or os.path.exists(os.path.join(folder, layout.FILE))
            if not is_store and not force and not {LOCK}.issuperset(os.listdir(folder)):
                raise BackupError(f"{folder} has files, but no store. Choose another folder, or give --force to "
                                  "replace the folder; it is kept under another name.")
            held = locked(folder)               # no broker runs, and none starts, also none with workers
            if is_store and not force:
                raise BackupError(f"{folder} has a store. Give --force to replace it; it is kept under another name.")
        shutil.rmtree(stage, ignore_errors=True)    # of a restore that was killed
        os.mkdir(stage, 0o700)
        base = _held(stage)
        reader.copy(names, lambda name: _opened(base.path, name[len(STORE):], reader.names[name]["mode"]), step)
        _check(base.path)
        _sync(base.path)
        _give(base, owner or _owner_of(folder, reader, names[0]))
        return _in_place(stage, folder)
    except StoreError as error:
        in_use, _, advice = str(error).partition("; stop it, ")
        raise BackupError(f"{in_use}. Stop the broker first." if advice else str(error)) from None
    except OSError as error:
        name = str(error.filename or folder)
        if base is not None:
            name = name.replace(base.path, stage)
        raise BackupError(f"Nothing is restored: {name}: {error.strerror}.") from None
    finally:
        for one in held:
            one.close()
        if base is not None:
            os.close(base.fd)
        shutil.rmtree(stage, ignore_errors=True)


class _Stage:
    """An open folder, and a path that leads to it whatever its name names by then. Other users may write in the folder
    above, and could put a link in its place while root restores; but none can change anything in a folder of root."""

    def __init__(self, fd: int) -> None:
        self.fd, self.path = fd, f"/proc/self/fd/{fd}"


def _held(stage: str) -> _Stage:
    """Open a folder that was just made. Raises OSError."""
    fd = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(fd).st_uid == os.geteuid():
        return _Stage(fd)
    os.close(fd)
    raise OSError(errno.EPERM, "another user put a folder in this place", stage)


def _opened(base: str, name: str, mode: int, owner: tuple[int, int] | None = None) -> "BinaryIO":
    path = os.path.join(base, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode & 0o700 | 0o600)
    if owner is not None and os.geteuid() == 0:
        os.fchown(fd, *owner)           # the file, whatever has its name by now
    os.fchmod(fd, mode & 0o777)
    return open(fd, "wb")


def _check(stage: str) -> None:
    """Read the store once. A torn end is no error: the broker was writing."""
    for folder in _stores_in(stage):
        loss = StoreSource(folder).scan(lambda _: None)
        if loss["unreadable"] or loss["foreign"]:
            raise BackupError("The backup has damaged segments of the store. Take another backup.")


def _stores_in(stage: str) -> list[str]:
    """Return the folders of the stores; those of workers end at different moments, which the next start settles."""
    try:
        found = layout.read_layout(stage)
    except OSError:
        raise BackupError(f"The backup has a damaged file `{layout.FILE}`. Take another backup.") from None
    if found is None:
        return [stage]
    layout.mark_restored(stage)
    folders = [os.path.join(stage, f"{WORKER}{i + 1}") for i in range(found.workers)]
    for folder in folders:
        os.makedirs(folder, 0o700, exist_ok=True)
    return [folder for folder in folders if segment_files(folder)]


def _sync(folder: str) -> None:
    for base, _, _ in os.walk(folder):
        sync_folder(base)


def _owner_of(folder: str, reader: Reader, name: str) -> tuple[int, int] | None:
    """Return user and group of the old store, else those of the file in the backup: by their names, and by their
    numbers if no user of this machine has that number. None: the files stay root's."""
    if os.path.isdir(folder):
        found = os.stat(folder)
        return found.st_uid, found.st_gid
    owner, names = reader.names[name].get("owner"), reader.names[name].get("names")
    if not isinstance(names, list) or len(names) != 2:
        names = None
    if names is not None:
        try:
            return pwd.getpwnam(str(names[0])).pw_uid, grp.getgrnam(str(names[1])).gr_gid
        except (KeyError, ValueError):          # this machine has no such user
            pass
    if (not isinstance(owner, list) or len(owner) != 2
            or not all(isinstance(one, int) and 0 <= one < ID_END for one in owner)):
        return None
    return None if names is not None and _is_taken(owner[0]) else (owner[0], owner[1])


def _is_taken(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _give(stage: _Stage, owner: tuple[int, int] | None) -> None:
    """Give files that root wrote to their owner. The outermost folder is the last one: until then the owner cannot
    enter it, and so it cannot put links in the place of folders."""
    if os.geteuid() != 0 or owner is None:
        return
    for base, _, names in os.walk(stage.path, topdown=False):
        for name in names:
            os.chown(os.path.join(base, name), *owner, follow_symlinks=False)
        if base != stage.path:
            os.chown(base, *owner, follow_symlinks=False)
    os.fchown(stage.fd, *owner)


def _in_place(stage: str, folder: str) -> str | None:
    """Exchange two folders; return where the old one is."""
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(folder):
        os.rename(stage, folder)
        sync_folder(above)
        return None
    kept = f"{folder}{KEPT}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.{os.getpid()}"
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is not None and exchange(AT_FDCWD, os.fsencode(stage), AT_FDCWD, os.fsencode(folder), EXCHANGE) == 0:
        sync_folder(above)
        os.rename(stage, kept)
    else:                               # a file system without exchange
        os.rename(folder, kept)
        os.rename(stage, folder)
    sync_folder(above)
    return kept


def restore_config(reader: Reader, base: str, force: bool, step: "Callable[[int], None]") -> list[str]:
    """Write the files of the configuration below `base`, each at its old path; return the files that were there and
    are kept under another name. Raises BackupError."""
    names = reader.below(CONFIG)
    paths = {name: os.path.join(base, name[len(CONFIG):]) for name in names}
    there = [path for path in paths.values() if os.path.lexists(path)]
    if there and not force:
        raise BackupError(f"{there[0]} exists. Give --force to replace it and {len(there) - 1} others; each is kept "
                          "under another name.")
    stages = {name: path + STAGE for name, path in paths.items()}
    end = f"{KEPT}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    try:
        for stage in stages.values():
            if os.path.lexists(stage):
                os.unlink(stage)
        for stage in stages.values():
            _reachable(os.path.dirname(os.path.abspath(stage)))
        reader.copy(names, lambda name: _opened("", stages[name], reader.names[name]["mode"],
                                                _owner_of("", reader, name)), step)
        for path in there:
            os.link(path, path + end, follow_symlinks=False)
        for name, path in paths.items():
            os.rename(stages[name], path)
        return [path + end for path in there]
    except OSError as error:
        raise BackupError(f"Not restored: {error.filename or base}: {error.strerror}.") from None
    finally:
        for stage in stages.values():
            if os.path.lexists(stage):
                os.unlink(stage)


def _reachable(folder: str) -> None:
    """Make a folder and those above it that are missing. A broker that is not root any more can read them, whatever the
    umask is. The files have their own modes."""
    if not os.path.isdir(folder):
        _reachable(os.path.dirname(folder))
        os.mkdir(folder)
        os.chmod(folder, 0o755)
