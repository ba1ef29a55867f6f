"""The queue of logins whose passwords must be hashed, and the threads that hash them, several at once if the processor
supports that. Knows the order and which checks may share a hash call; Access interprets the results.

  put (control thread) -> waiting -> a thread takes checks that can share a call -> is_due? -> Checker.match -> checked

Invariants: networks get their turns one after the other (turns.py). No check is lost: after it is queued, a thread is
notified, unless as many notifications wait as there are threads. A thread checks only one login of a user at a time, so
that the pause of a guesser begins before the next guess.
Cost: some 10 us of Python besides the hash.
"""

from mosq.auth.hashes import Checker, Hash
from mosq.auth.networks import network_of
from mosq.auth.pool import Pool
from mosq.auth.turns import Turns, bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.server.access import Access


class Check:
    """One login that waits for its hash."""

    __slots__ = ("access", "handle", "user", "password", "address", "hash", "known", "key", "deadline")

    def __init__(                       # parameters: a record; each is one slot
            self, access: "Access", handle: int, user: str, password: bytes, address: str, hash: Hash, known: bool,
            key: bytes | None, deadline: float) -> None:
        """`hash` may be a decoy; `known` says whether the user exists. `key` is the key of a remembered verdict."""
        self.access, self.handle, self.user, self.password, self.address = access, handle, user, password, address
        self.hash, self.known, self.key, self.deadline = hash, known, key, deadline


class Checks:
    """The queue and its threads. `put` never waits."""

    def __init__(self, threads: int, waiting_max: int, when_idle: "Callable[[], None]", failed: "Callable[[str], None]"
                 ) -> None:
        self.turns = Turns(waiting_max)
        self._threads, self._failed = threads, failed
        self._checker = Checker()
        self._closing = False
        self.pool = Pool("hash", threads, waiting_max, when_idle, failed)

    def waiting(self) -> int:
        """Return the number of queued checks."""
        return len(self.turns)

    def put(self, check: Check, trusted: bool) -> None:
        """Queue a check. If there is no room, this one or those of a network with more are answered as failed.
        `trusted`: the user has logged in from the address before."""
        held = bytes_of((check.user, check.password, check.address))
        for lost in self.turns.put(network_of(check.address), check, held, trusted):
            lost.access.unchecked(lost)
        if self.pool.waiting() < self._threads:
            self.pool.put(self._work_off)

    def close(self, within_s: float) -> bool:
        """Answer the waiting checks as failed and end the threads. Return whether they ended within `within_s`
        seconds."""
        self._closing = True
        while (check := self.turns.take()) is not None:     # answer every check that waits
            check.access.unchecked(check)
        return self.pool.close(within_s)

    def _work_off(self) -> None:
        """Hash until the queue is empty. Runs in a thread of the pool."""
        while not self._closing:
            together = self._next()
            if not together:
                return
            try:
                good = self._checker.match([check.hash for check in together], [check.password for check in together])
            except Exception as error:
                self._failed(type(error).__name__)
                for check in together:
                    check.access.unchecked(check)
                continue
            for check, matches in zip(together, good, strict=True):
                check.access.checked(check, matches)

    def _next(self) -> list[Check]:
        """Return the next checks that can share a hash call, in the order of their turns."""
        together: list[Check] = []

        def can_share(check: Check) -> bool:
            return not together or (self._checker.alike(together[0].hash, check.hash)
                                    and all(other.user != check.user for other in together))

        while len(together) < self._checker.width and (check := self.turns.take(can_share)) is not None:
            if check.access.is_due(check):
                together.append(check)
        return together
