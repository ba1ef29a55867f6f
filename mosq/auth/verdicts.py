"""Remembers successful password checks, so that a client that returns costs no hash. Knows only keyed digests.

Invariant: a verdict is bound to the exact hash in the password file (its salt is part of the key), so a changed or
removed password never matches an earlier verdict. Only successes are remembered, as digests under a random key of this
process, for a limited time.
Cost: about 4 us.
"""

import os
import threading
from hashlib import blake2b
from time import monotonic

from cachetools import TTLCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.auth.hashes import Hash

KEY_BYTES, DIGEST_BYTES = 32, 32


class Verdicts:
    """A cache with limits of number and age. Several threads may call it."""

    def __init__(self, size: int, seconds: float, clock: "Callable[[], float]" = monotonic) -> None:
        """`size` 0: the cache is disabled. `seconds`: lifetime of a verdict."""
        self._secret = os.urandom(KEY_BYTES)
        self._lock = threading.Lock()
        self._good: TTLCache[bytes, bool] = TTLCache(size, seconds, timer=clock)
        self.size, self.seconds = size, seconds

    def key(self, hash: "Hash", user: str, password: bytes) -> bytes:
        """Return the key of a verdict."""
        # Neither the encoded hash nor a user name contains a zero byte [MQTT-1.5.4-2]: different triples are different
        # bytes.
        return blake2b(b"\0".join((hash.encoded.encode(), user.encode(), password)),
                       key=self._secret, digest_size=DIGEST_BYTES).digest()

    def knows(self, key: bytes) -> bool:
        """Return whether this verdict is remembered."""
        with self._lock:
            return key in self._good

    def remember(self, key: bytes) -> None:
        """Remember a successful check."""
        if self.size:
            with self._lock:
                self._good[key] = True

    def __len__(self) -> int:
        with self._lock:
            return len(self._good)
