"""Provide a disk for the store's tests: files in memory with a page cache and a durable part, and with faults on request.

`power_cut` keeps any subset of the unsynced 512-byte sectors, and of the names that were added or removed since the last sync.
A datasync that fails has lost its sectors: the page cache still shows them, a second call succeeds, and only a power cut shows
that they are gone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from cext.testing.disk_api import file_ops

SECTOR = 512


class File:
    def __init__(self) -> None:
        self.data = bytearray()  # bytes that a reader sees: the page cache
        self.durable = bytearray()  # bytes on the disk
        self.dirty: set[int] = set()  # sectors that a sync would write


class Disk:
    def __init__(self, space: int = 1 << 40) -> None:
        self.files: dict[str, File] = {}
        self.durable_names: dict[str, File] = {}
        self.fds: dict[int, File] = {}
        self.failed: set[int] = set()  # descriptors whose sync has failed
        self.next_fd = 100
        self.space = space
        self.faults: dict[str, list[int | str]] = {}  # call -> results of its next calls: "short", "ok" or an errno
        self.calls: list[str] = []
        self.broken: BaseException | None = None
        self.loses = True  # a failed datasync loses the bytes that were not on the disk
        self.deferred = self.unreserved = False  # as in FileOps (cext/store/file.pxd): both are true for files in Redis

    def file_ops(self) -> object:
        return file_ops(self)

    # ---- calls of the store

    def name_of(self, path: str) -> str:
        return path.rsplit("/", 1)[1]

    def _fault(self, call: str) -> int | str:
        self.calls.append(call)
        plan = self.faults.get(call)
        return plan.pop(0) if plan else "ok"

    def open(self, path: str, flags: int) -> int:
        if isinstance(fault := self._fault("open"), int):
            return -fault
        name = self.name_of(path)
        if name not in self.files:
            if not flags & os.O_CREAT:
                return -errno.ENOENT
            self.files[name] = File()
        elif flags & os.O_EXCL:
            return -errno.EEXIST
        self.next_fd += 1
        self.fds[self.next_fd] = self.files[name]
        return self.next_fd

    def close(self, fd: int) -> int:
        del self.fds[fd]
        return 0

    def pread(self, fd: int, n: int, at: int) -> bytes | int:
        if isinstance(fault := self._fault("pread"), int):
            return -fault
        return bytes(self.fds[fd].data[at:at + (n if fault == "ok" else max(1, n // 2))])

    def used(self) -> int:
        return sum(len(f.data) for f in {id(f): f for f in [*self.files.values(), *self.fds.values()]}.values())

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        fault = self._fault("pwrite")
        if isinstance(fault, int):
            return -fault
        if fault == "short":
            data = data[:max(1, len(data) // 2)]
        file = self.fds[fd]
        more = at + len(data) - len(file.data)
        if more > 0 and more > self.space - self.used():
            data = data[:max(0, len(data) - (more - max(0, self.space - self.used())))]
            if not data:
                return -errno.ENOSPC
        if at > len(file.data):
            file.data.extend(bytes(at - len(file.data)))
        file.data[at:at + len(data)] = data
        file.dirty.update(range(at // SECTOR, (at + len(data) - 1) // SECTOR + 1))
        return len(data)

    def datasync(self, fd: int) -> int:
        fault = self._fault("datasync")
        file = self.fds[fd]
        assert fd not in self.failed or self.deferred, "a descriptor whose sync has failed is asked again"
        if isinstance(fault, int):
            self.failed.add(fd)
            if self.loses:
                file.dirty.clear()
            return -fault
        self._settle(file, file.dirty)
        file.dirty.clear()
        return 0

    def truncate(self, fd: int, n: int) -> int:
        del self.fds[fd].data[n:]
        return 0

    def size(self, fd: int) -> int:
        return len(self.fds[fd].data)

    def unlink(self, path: str) -> int:
        if isinstance(fault := self._fault("unlink"), int):
            return -fault
        return 0 if self.files.pop(self.name_of(path), None) else -errno.ENOENT

    def rename(self, path: str, target: str) -> int:
        if isinstance(fault := self._fault("rename"), int):
            return -fault
        self.files[self.name_of(target)] = self.files.pop(self.name_of(path))
        return 0

    def sync_dir(self, path: str) -> int:
        if isinstance(fault := self._fault("sync_dir"), int):
            return -fault
        self.durable_names = dict(self.files)
        return 0

    def names(self, path: str) -> list[str]:
        return list(self.files)

    # ---- faults

    def _settle(self, file: File, sectors: set[int]) -> None:
        for sector in sectors:
            piece = file.data[sector * SECTOR:(sector + 1) * SECTOR]
            if len(file.durable) < sector * SECTOR:
                file.durable.extend(bytes(sector * SECTOR - len(file.durable)))
            file.durable[sector * SECTOR:sector * SECTOR + len(piece)] = piece

    def kill(self) -> None:
        """End the process; the machine stays up, so the page cache survives."""
        self.fds.clear()
        self.failed.clear()
        self.faults.clear()

    def power_cut(self, keep: Callable[[], bool]) -> None:
        """Cut the power. For each unsynced sector and name, keep() decides whether it had reached the disk."""
        self.kill()
        names = dict(self.durable_names)
        for name in sorted({*self.files, *names}):
            if self.files.get(name) is not names.get(name) and keep():
                names.pop(name, None)
                if name in self.files:
                    names[name] = self.files[name]
        self.files = names
        self.durable_names = dict(names)
        for _, file in sorted(names.items()):
            self._settle(file, {sector for sector in sorted(file.dirty) if keep()})
            file.data = bytearray(file.durable)
            file.dirty.clear()
