"""The mark of a plugin's copy: which contents the plugin may have, because mosq has brought it there.

A starting broker compares the fingerprint of what the plugin restores with the mark. A content that the mark does not
know was written by another program. While the broker runs, the mark knows the content after each event: each batch of
events is noted, and is on the disk, before the plugin gets it, so a kill at any moment leaves a content that is known.
After a clean end it knows one content only.

The mark is a file in the store's folder, for each plugin one. It may be copied together with the store.
"""

import os
import struct
import zlib
from array import array
from typing import TYPE_CHECKING

from mosq.tools.db.mark import sync_folder
from mosq.tools.db.store import LOCK, give_to_owner, segment_files

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "copy."                  # beginning of the names of these files
MAGIC, VERSION = b"mosqcopy", 1
HEAD = struct.Struct("<8sII48x")
KNOWN_MAX = 1 << 20             # contents that the file has room for; the oldest make room for new ones
CLEAN = 1                       # the broker has ended, and the plugin had got everything
MATCHED = 2                     # the plugin has once restored what it had got, so it is able to
FAILED = 4                      # an event failed, so the plugin may lack any part
LOSSY = 16                      # it never gave back what it had got, and an operator has preferred the store
WORTHLESS = 8                   # the plugin has everything: the store is being removed
PREFERENCE = "copy-preference"  # name of the file with the decision of an operator
STORE, PLUGIN = "store", "plugin"


class CopyMark:
    """The mark of one plugin. `read` returns one that is there; `begin` replaces it."""

    def __init__(self, store: str, plugin: str) -> None:
        self._store = store
        self.path = os.path.join(store, f"{NAME}{zlib.crc32(os.fsencode(os.path.abspath(plugin))):08x}")
        self.flags, self.known = 0, array("Q")
        self._fd, self._n = -1, 0

    def read(self) -> bool:
        """Read the file; return whether it is there and can be trusted."""
        try:
            with open(self.path, "rb") as file:
                magic, version, self.flags = HEAD.unpack(file.read(HEAD.size))
                rest = file.read(8 * KNOWN_MAX)
        except (OSError, struct.error):
            return False
        self.known = array("Q")
        self.known.frombytes(rest[:len(rest) // 8 * 8])
        return bool(magic == MAGIC and version == VERSION)

    def begin(self, known: "Iterable[int]", flags: int = 0) -> None:
        """Replace the file with one that knows these contents. Raises OSError."""
        self.close()
        self.flags, self.known = flags, array("Q", known)
        os.makedirs(self._store, 0o700, exist_ok=True)
        part = f"{self.path}.new"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, HEAD.pack(MAGIC, VERSION, flags) + self.known.tobytes())
            os.fsync(fd)
            os.rename(part, self.path)
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._n = fd, len(self.known)
        sync_folder(self._store)

    def note(self, contents: "array[int]") -> None:
        """Add contents that the plugin will have next; they are on the disk when this returns. Raises OSError."""
        while contents:
            at = self._n % KNOWN_MAX
            now, contents = contents[:KNOWN_MAX - at], contents[KNOWN_MAX - at:]
            os.pwrite(self._fd, now.tobytes(), HEAD.size + 8 * at)
            self._n += len(now)
        os.fdatasync(self._fd)

    def add_flags(self, flags: int) -> None:
        """Raises OSError."""
        self.flags |= flags
        os.pwrite(self._fd, HEAD.pack(MAGIC, VERSION, self.flags), 0)
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def mark_files(store: str) -> list[str]:
    """Return the names of all marks of copies in a store's folder."""
    try:
        return [name for name in os.listdir(store) if name.startswith(NAME)]
    except OSError:
        return []


def remove_store(path: str) -> None:
    """Remove the files of a store that is worth nothing, its marks last. Former stores in its folder stay. Raises
    OSError."""
    for name in (*segment_files(path), *mark_files(path), LOCK):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            pass
    try:
        os.rmdir(path)
    except OSError:
        pass


def prefer(store: str, what: str) -> None:
    """Note which of both counts at the next start: STORE or PLUGIN. Raises OSError."""
    path = os.path.join(store, PREFERENCE)
    with open(path, "wb") as file:
        file.write(what.encode())
        file.flush()
        os.fsync(file.fileno())
    give_to_owner(path, store)
    sync_folder(store)


def preference(store: str) -> str:
    """Return what an operator has decided; "" if nothing."""
    try:
        with open(os.path.join(store, PREFERENCE), "rb") as file:
            return {b"store": STORE, b"plugin": PLUGIN}.get(file.read(16).strip(), "")
    except FileNotFoundError:
        return ""


def forget_preference(store: str) -> None:
    try:
        os.unlink(os.path.join(store, PREFERENCE))
    except FileNotFoundError:
        pass
