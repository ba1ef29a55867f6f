"""Hashes the passwords that commands set, in advance and in another thread, because each takes about a
millisecond.

One thread of low priority (mosq/auth/pool.py), separate from those of logins, so that logins do not wait while a
command creates many clients. It survives a reload as the directory does. Knows passwords, not their users.
Invariant: the caller that waits for a batch is always woken; a hash that is missing in the batch is computed when
needed.
"""

from mosq.auth.hashes import PBKDF2, Hash, new_hash, read_hash
from mosq.auth.pool import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Batch:
    """The passwords of one message, by index. Equal passwords get different hashes, so that the hashes do not
    show which passwords are equal."""

    def __init__(self, passwords: dict[int, bytes], wake: "Callable[[], None]") -> None:
        self._passwords, self._wake = passwords, wake
        self.hashes: dict[int, Hash] = {}
        self.is_done = False
        self.is_given_up = False

    def run(self) -> None:
        """Hash the passwords; runs in the pool's thread."""
        try:
            for place, password in self._passwords.items():
                if self.is_given_up:
                    break
                self.hashes[place] = made(password)
        finally:
            self.end()

    def end(self) -> None:
        """Mark the batch as done and wake the caller."""
        self.is_done = True
        self._wake()


class Hashing:
    """Run one batch of passwords at a time in one thread."""

    def __init__(self) -> None:
        self._pool = Pool("passwords", 1, 1, lambda: None, lambda error: None)
        self._running: Batch | None = None

    def begin(self, passwords: dict[int, bytes], wake: "Callable[[], None]") -> Batch:
        """Start a batch; the caller checks `is_done` after `wake`."""
        batch = self._running = Batch(passwords, wake)
        if not passwords or not self._pool.put(batch.run):
            batch.is_done = True
        return batch

    def close(self, within_s: float) -> None:
        """End the thread, waiting at most `within_s` seconds."""
        if self._running is not None:
            self._running.is_given_up = True
        self._pool.close(within_s)
        if self._running is not None and not self._running.is_done:
            self._running.end()                 # the batch has not begun or does not end


def made(password: bytes) -> Hash:
    """Return a new hash of the password."""
    return read_hash(new_hash(PBKDF2, password))
