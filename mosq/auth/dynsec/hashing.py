"""Passwords that commands set, hashed ahead of the commands, off the control thread: a millisecond each.

One thread of low priority (mosq/auth/pool.py), and not those of log-ins: nobody who logs in stands behind an operator's
ten thousand new clients, and it outlives a reload as the directory does. Knows passwords; not whose they are.
Invariant: who waits for a batch is woken, whatever becomes of it; what it does not have is hashed where it is needed.
"""

from mosq.auth.hashes import PBKDF2, Hash, new_hash, read_hash
from mosq.auth.pool import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Batch:
    """Of one message: place -> password. None of two equal ones share a hash, which would tell that they are equal."""

    def __init__(self, passwords: dict[int, bytes], wake: "Callable[[], None]") -> None:
        self._passwords, self._wake = passwords, wake
        self.hashes: dict[int, Hash] = {}
        self.is_done = False
        self.is_given_up = False

    def run(self) -> None:
        try:
            for place, password in self._passwords.items():
                if self.is_given_up:
                    break
                self.hashes[place] = made(password)
        finally:
            self.end()

    def end(self) -> None:
        self.is_done = True
        self._wake()


class Hashing:
    """One batch at a time."""

    def __init__(self) -> None:
        self._pool = Pool("passwords", 1, 1, lambda: None, lambda error: None)
        self._running: Batch | None = None

    def begin(self, passwords: dict[int, bytes], wake: "Callable[[], None]") -> Batch:
        batch = self._running = Batch(passwords, wake)
        if not passwords or not self._pool.put(batch.run):
            batch.is_done = True
        return batch

    def close(self, within_s: float) -> None:
        if self._running is not None:
            self._running.is_given_up = True
        self._pool.close(within_s)
        if self._running is not None and not self._running.is_done:
            self._running.end()                 # it was not begun, or does not end


def made(password: bytes) -> Hash:
    return read_hash(new_hash(PBKDF2, password))
