"""The mark of a store: which file of Mosquitto has the content of this store, because mosq wrote or imported it.

A starting broker compares the file with the mark. A file that the mark does not know was written by another program. A
file that the mark knows and that is gone was removed by an operator. The mark is a file in the store's folder. It
contains its own inode, so a mark that came with a copy of the folder (a restored backup) is not trusted.
Devices are not compared, because their numbers may change when the machine starts.

Imported before the broker listens, so it imports almost nothing.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    Identity = tuple[int, int, int]  # inode, size, time of the last change in nanoseconds

NAME = "mosquitto.mark"
BYTES_MAX = 65536
EXPORTED, IMPORTED = "exported", "imported"
PARTLY = "partly"  # imported, but parts of the file were left out as invalid
# names of former stores: in the store's folder, and beside it after `mosq restore`
REPLACED, REMOVED, BEFORE_RESTORE = "replaced", "removed", ".before-restore"
ASIDE = (f"{REPLACED}.", f"{REMOVED}.")
# names in the folder of the stores of workers (mosq/server/layout.py)
LAYOUT, WORKER, RESTORED = "workers", "worker.", "restored"
FORMER_MANY = 2                 # more former stores than this are reported
TAKEN_OVER, FOREIGN = "taken-over", "foreign"  # a file that mosq keeps under another name: read by it, or unknown to it


class Mark:
    """`files`: the file, and the one that it replaced, so that a crash between the mark and the replacement does no
    harm. `how`: EXPORTED, IMPORTED or PARTLY. `end_lsn`: the end of the store when its content was written; -1 if it
    was imported."""

    __slots__ = ("end_lsn", "files", "how", "path")

    def __init__(self, path: str, files: "list[Identity]", how: str, end_lsn: int = -1) -> None:
        self.path, self.files, self.how, self.end_lsn = path, files, how, end_lsn


def identity(path: str) -> "Identity | None":
    """Return what identifies the content of a file; None if there is no file. Raises OSError for other reasons."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_mark(store: str, path: str) -> Mark | None:
    """Return the mark of a store about this file; None if it has none that can be trusted."""
    try:
        with open(os.path.join(store, NAME), "rb") as file:
            lines, inode = file.read(BYTES_MAX).decode().splitlines(), os.fstat(file.fileno()).st_ino
        fields = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        files = [identity_of(line) for line in lines if line.startswith("file ")]
        mark = Mark(os.fsdecode(bytes.fromhex(fields["path"])), files, fields["how"], int(fields["end_lsn"]))
        if int(fields["self"]) != inode or mark.path != os.path.abspath(path):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return mark


def identity_of(line: str) -> "Identity":
    """Return the identity in a line of a mark. Raises ValueError."""
    _, inode, size, changed_ns = line.split(" ")
    return int(inode), int(size), int(changed_ns)


def write_mark(store: str, mark: Mark) -> None:
    """Replace the mark of a store; the change is on the disk when this returns. Raises OSError."""
    path = os.path.join(store, NAME)
    part = f"{path}.{os.getpid()}"
    try:
        _remove(part)           # a file of this name may be a link to another one
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            lines = [f"self {os.fstat(fd).st_ino}", f"path {os.fsencode(os.path.abspath(mark.path)).hex()}",
                     f"how {mark.how}", f"end_lsn {mark.end_lsn}"]
            lines += [f"file {inode} {size} {changed_ns}" for inode, size, changed_ns in mark.files]
            os.write(fd, "\n".join(lines).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(part, path)
    except BaseException:
        _remove(part)
        raise
    sync_folder(store)


def remove_mark(store: str) -> None:
    """Remove the mark of a store, if there is one."""
    _remove(os.path.join(store, NAME))


def keep(path: str, what: str) -> str:
    """Give the content of a file a second name, `PATH.WHAT` or `PATH.WHAT.NUMBER`, which stays when the file is
    replaced. Return that name. Raises OSError."""
    for number in range(1000):
        kept = f"{path}.{what}.{number}" if number else f"{path}.{what}"
        try:
            os.link(path, kept, follow_symlinks=True)
        except FileExistsError:
            if os.path.samefile(path, kept):
                return kept
            continue
        except OSError:     # a file system without links
            import shutil

            if os.path.exists(kept):
                continue
            shutil.copy2(path, kept)
        sync_folder(os.path.dirname(kept) or ".")
        return kept
    raise OSError(f"{path}.{what}.*: a thousand files; remove those that you do not need")


def former_stores(store: str) -> tuple[list[str], int]:
    """Return the former stores that mosq has set aside in and beside a store's folder, and their size in bytes."""
    above, name = os.path.split(os.path.abspath(store))
    found = _folders(store, ASIDE) + _folders(above, (f"{name}{BEFORE_RESTORE}.",))
    size = 0
    for folder in found:
        for base, _, names in os.walk(folder):
            size += sum(_size(os.path.join(base, one)) for one in names)
    return found, size


def former_line(store: str) -> str:
    """Return the sentence about former stores, if there are more than FORMER_MANY; else ""."""
    found, size = former_stores(store)
    if len(found) <= FORMER_MANY:
        return ""
    return (f"{len(found)} former stores with {size / 1e6:,.1f} MB are kept in and beside {store}, the oldest in "
            f"{min(found, key=lambda one: one.rpartition('.')[0].rpartition('.')[2])}. mosq does not read them again.")


def _folders(folder: str, begins: tuple[str, ...]) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if name.startswith(begins)]
    return [path for path in paths if os.path.isdir(path)]


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def sync_folder(path: str) -> None:
    """Wait until changes of names in a folder are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
