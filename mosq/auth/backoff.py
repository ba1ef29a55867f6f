"""Slows down who guesses passwords, without locking others out. Knows addresses, user names and time; not why a login
failed.

Of each user at an address: the third failure in a row begins a pause of 0.1 s, and every further one doubles it, up
to 10 s; attempts within the pause are refused unseen, and do not prolong it. A success ends it.

Of each address: what counts is how many *different* users failed from there, since many clients may share one (NAT, a
proxy), and a device with an old password tries it for ever. Beyond ten, the address pauses in the same way; half a
minute takes one off. A user who has logged in from this address within a day is not subject to the address's pause,
nor is one whose verdict is still known (verdicts.py), which is looked at first.

Bounded: digests under a random key, not names; so many of them and no more; the least recently used goes first. An
IPv6 address counts by its /64. What is not an IP address (unix sockets) has no pause of its own. Cost: about 5 us.
"""

import os
import threading
from hashlib import blake2b
from socket import AF_INET6, inet_pton
from time import monotonic

from cachetools import TTLCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FREE_FAILURES = 2               # people mistype, and programs try twice
FREE_USERS = 10
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 10.0
DOUBLINGS_MAX = 7               # 0.1 s x 2^7 is more than the longest pause
FORGET_S = 600.0                # without another failure
TRUST_S = 86400.0               # of a user who logged in from there
USER_PAID_OFF_S = 30.0
ENTRIES_MAX = 100_000           # of each kind: about 30 MB when full


class Backoff:
    """Of several threads."""

    def __init__(self, clock: "Callable[[], float]" = monotonic, entries_max: int = ENTRIES_MAX) -> None:
        self._clock = clock
        self._secret = os.urandom(32)
        self._lock = threading.Lock()
        # (failures, paused until), (users that failed, as of, paused until)
        self._users: TTLCache[bytes, tuple[int, float]] = TTLCache(entries_max, FORGET_S, timer=clock)
        self._places: TTLCache[bytes, tuple[float, float, float]] = TTLCache(entries_max, FORGET_S, timer=clock)
        self._trusted: TTLCache[bytes, bool] = TTLCache(entries_max, TRUST_S, timer=clock)

    def _key(self, address: str, user: str) -> bytes:
        return blake2b(place(address) + b"\0" + user.encode(), key=self._secret, digest_size=16).digest()

    def refuses(self, address: str, user: str) -> bool:
        """Whether an attempt now is not even looked at."""
        if not self._users and not self._places:        # as it should be; reading a length needs no lock
            return False
        now, key = self._clock(), self._key(address, user)
        with self._lock:
            _, until = self._users.get(key, (0, 0.0))
            if now < until:
                return True
            _, _, until = self._places.get(place(address), (0.0, 0.0, 0.0))
            return now < until and key not in self._trusted

    def failed(self, address: str, user: str) -> float:
        """An attempt that was looked at has failed. Returns the pause of the address that begins now; 0: none."""
        now, key = self._clock(), self._key(address, user)
        with self._lock:
            failures, until = self._users.get(key, (0, 0.0))
            if now < until:             # they ran side by side: one pause for them all
                return 0.0
            self._users[key] = failures + 1, now + pause(failures + 1 - FREE_FAILURES)
            where = place(address)
            if failures or not where:
                return 0.0
            users, since, until = self._places.get(where, (0.0, now, 0.0))
            users = max(0.0, users - (now - since) / USER_PAID_OFF_S) + 1
            pause_s = pause(int(users) - FREE_USERS)
            self._places[where] = min(users, FREE_USERS + DOUBLINGS_MAX + 1.0), now, max(until, now + pause_s)
            return pause_s

    def succeeded(self, address: str, user: str) -> None:
        key = self._key(address, user)
        with self._lock:
            if self._users:
                self._users.pop(key, None)
            self._trusted[key] = True


def pause(failures: int) -> float:
    """After so many failures beyond those that are free."""
    return 0.0 if failures <= 0 else min(PAUSE_MAX_S, PAUSE_MIN_S * (1 << min(failures - 1, DOUBLINGS_MAX)))


def place(address: str) -> bytes:
    """What counts as one address; b"": not an IP address."""
    if ":" not in address:
        return address.encode() if address[:1].isdigit() else b""
    try:
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return b""
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return ".".join(str(part) for part in packed[12:]).encode()
    return packed[:8]               # a /64 is what one subscriber has
