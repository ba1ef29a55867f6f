"""Provide a disk on which another process reads while a store is written.

The bytes of a write arrive in pieces, one after the other. A reader gets its bytes in short reads; before each of them, and
in the middle of it, some pieces arrive, and the writer takes its next steps. So a reader that takes several reads for one
moment finds a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tests.store.disk import Disk, File

PIECE, READ, HEADER = 60, 512, 4096


class RacingDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.arriving: deque[tuple[File, int, bytes]] = deque()
        self.writer: Iterator[object] = iter(())        # its steps
        self.pieces = 1                 # pieces that arrive before each read
        self.pace = 1                   # reads of the reader for each step of the writer
        self.reads = 0
        self._is_reading = False

    def race(self, read: Callable[[], object], writer: Iterator[object], pieces: int, pace: int) -> None:
        """Run a reader, while the writer takes its steps."""
        self.writer, self.pieces, self.pace = writer, pieces, pace
        self._is_reading = True
        try:
            read()
        finally:
            self._is_reading = False
            self._arrive(len(self.arriving))
        assert self.broken is None, self.broken

    def _arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.arriving))):
            file, at, piece = self.arriving.popleft()
            file.data.extend(bytes(max(0, at + len(piece) - len(file.data))))
            file.data[at:at + len(piece)] = piece

    def pread(self, fd: int, n: int, at: int) -> bytes | int:
        if not self._is_reading:
            self._arrive(len(self.arriving))            # the writer sees its own bytes
            return super().pread(fd, n, at)
        self.reads += 1
        self._is_reading = False
        if self.reads % self.pace == 0:
            next(self.writer, None)
        self._is_reading = True
        self._arrive(self.pieces)
        n = min(n, HEADER if at == 0 else READ)
        front = super().pread(fd, n // 2, at)
        self._arrive(self.pieces)
        back = super().pread(fd, n - n // 2, at + n // 2)
        return front + back if isinstance(front, bytes) and isinstance(back, bytes) else back

    def pwrite(self, fd: int, data: bytes, at: int) -> int:
        self._arrive(len(self.arriving))                # the storage thread has one write at a time
        if self.reads == 0:
            return super().pwrite(fd, data, at)
        self.arriving.extend((self.fds[fd], at + i, bytes(data[i:i + PIECE])) for i in range(0, len(data), PIECE))
        return len(data)
