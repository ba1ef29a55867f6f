"""Slows down password guessing without locking out other users. Knows addresses, user names and time, not why a login
failed.

For each user at an address: the third failure in a row begins a pause of 0.1 s, and each further one doubles it, up to
10 s. Attempts within the pause are refused without a check and do not prolong it. A success ends it.

For each address: the number of *different* users that failed there counts, because many clients may share an address
(NAT, a proxy), and a device with an old password repeats it for ever. Beyond ten users, the address is paused in the
same way; every half minute reduces the number by one. The pause of an address does not apply to a user who has logged
in from it within a day. In a pause, a remembered verdict (verdicts.py) counts only for such a user: otherwise a guesser
could try passwords during the pause, and the right one would be accepted.

Limits: the tables hold digests under a random key, no names, and at most ENTRIES_MAX each; the least recently used
entry is removed first. An IPv6 address counts by its /64. An address that is no IP address (Unix sockets) has no pause
of its own.
Cost: about 5 us.
"""

import os
import threading
from hashlib import blake2b
from time import monotonic

from cachetools import TTLCache

from mosq.auth.networks import subscriber_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FREE_FAILURES = 2               # people mistype, and programs retry
FREE_USERS = 10
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 10.0
DOUBLINGS_MAX = 7               # 0.1 s x 2^7 is more than the longest pause
FORGET_S = 600.0                # lifetime of an entry without another failure
TRUST_S = 86400.0               # time for which a successful user is exempt from the address's pause
USER_PAID_OFF_S = 30.0          # seconds after which an address is charged one user less
ENTRIES_MAX = 100_000           # entries in each table: about 30 MB when full


class Backoff:
    """Counts failures and computes pauses. Several threads may call it."""

    def __init__(self, clock: "Callable[[], float]" = monotonic, entries_max: int = ENTRIES_MAX) -> None:
        self._clock = clock
        self._secret = os.urandom(32)
        self._lock = threading.Lock()
        # values: (failures, paused until); (users that failed, time of that number, paused until)
        self._users: TTLCache[bytes, tuple[int, float]] = TTLCache(entries_max, FORGET_S, timer=clock)
        self._places: TTLCache[bytes, tuple[float, float, float]] = TTLCache(entries_max, FORGET_S, timer=clock)
        self._n_failed = self._n_refused = 0    # attempts since the start
        self.note: Callable[[int, int], None] | None = None     # gets both numbers when one has risen
        self._trusted: TTLCache[bytes, bool] = TTLCache(entries_max, TRUST_S, timer=clock)

    def _key(self, address: str, user: str) -> bytes:
        return blake2b(subscriber_of(address) + b"\0" + user.encode(), key=self._secret, digest_size=16).digest()

    def refuses(self, address: str, user: str) -> bool:
        """Return whether an attempt now is refused without a check."""
        if not self._users and not self._places:        # the usual case; reading a length needs no lock
            return False
        now, key = self._clock(), self._key(address, user)
        with self._lock:
            _, until = self._users.get(key, (0, 0.0))
            if now < until:
                return True
            _, _, until = self._places.get(subscriber_of(address), (0.0, 0.0, 0.0))
            return now < until and key not in self._trusted

    def remembers(self) -> bool:
        """Return whether there were failures of late, so that an attempt may be refused."""
        with self._lock:
            self._users.expire()
            self._places.expire()
            return bool(self._users) or bool(self._places)

    def refused(self) -> None:
        """Count a login that is refused because of a pause."""
        with self._lock:
            self._n_refused += 1
            self._noted()

    def _noted(self) -> None:
        if self.note is not None:
            self.note(self._n_failed, self._n_refused)

    def counts(self) -> dict[str, int]:
        """Return the numbers of failed and refused logins since the start, and of pairs of user and address, and
        addresses, with recent failures."""
        with self._lock:
            return {"failed": self._n_failed, "refused": self._n_refused, "users": len(self._users),
                    "addresses": len(self._places)}

    def trusts(self, address: str, user: str) -> bool:
        """Return whether the user has logged in from the address within a day."""
        key = self._key(address, user)
        with self._lock:
            return key in self._trusted

    def failed(self, address: str, user: str) -> float:
        """Count an attempt that was checked and failed. Return the seconds for which the address is paused from now; 0:
        not."""
        now, key = self._clock(), self._key(address, user)
        with self._lock:
            self._n_failed += 1
            self._noted()
            failures, until = self._users.get(key, (0, 0.0))
            if now < until:             # they ran in parallel: one pause for all of them
                return 0.0
            self._users[key] = failures + 1, now + pause(failures + 1 - FREE_FAILURES)
            where = subscriber_of(address)
            if failures or not where:
                return 0.0
            users, since, until = self._places.get(where, (0.0, now, 0.0))
            users = max(0.0, users - (now - since) / USER_PAID_OFF_S) + 1
            pause_s = pause(int(users) - FREE_USERS)
            self._places[where] = min(users, FREE_USERS + DOUBLINGS_MAX + 1.0), now, max(until, now + pause_s)
            return pause_s

    def succeeded(self, address: str, user: str) -> None:
        """Count a successful login: end the user's pause and exempt the user from the address's pause."""
        key = self._key(address, user)
        with self._lock:
            if self._users:
                self._users.pop(key, None)
            self._trusted[key] = True


def pause(failures: int) -> float:
    """Return the pause in seconds after this number of failures beyond the free ones."""
    return 0.0 if failures <= 0 else min(PAUSE_MAX_S, PAUSE_MIN_S * (1 << min(failures - 1, DOUBLINGS_MAX)))
