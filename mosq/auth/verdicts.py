"""Remembers who proved a password, so that a client that comes back costs no hash. Knows keyed digests only.

Invariant: what is remembered is bound to the very hash in the password file (its salt is part of the key): a changed
or removed password never finds a verdict that was made before, whatever happens in between. Only good verdicts are
kept, as digests under a random key of this process, for a bounded time. Cost: about 4 us.
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
    """Bounded in number and age; of several threads."""

    def __init__(self, size: int, seconds: float, clock: "Callable[[], float]" = monotonic) -> None:
        """`size` 0: nothing is remembered."""
        self._secret = os.urandom(KEY_BYTES)
        self._lock = threading.Lock()
        self._good: TTLCache[bytes, bool] = TTLCache(size, seconds, timer=clock)
        self.size, self.seconds = size, seconds

    def key(self, hash: "Hash", user: str, password: bytes) -> bytes:
        # no zero byte in the encoded hash, none in a user name [MQTT-1.5.4-2]: different triples are different bytes
        return blake2b(b"\0".join((hash.encoded.encode(), user.encode(), password)),
                       key=self._secret, digest_size=DIGEST_BYTES).digest()

    def knows(self, key: bytes) -> bool:
        with self._lock:
            return key in self._good

    def remember(self, key: bytes) -> None:
        if self.size:
            with self._lock:
                self._good[key] = True

    def __len__(self) -> int:
        with self._lock:
            return len(self._good)
