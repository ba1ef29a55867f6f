"""The queue of log-ins whose passwords are to be hashed, and the threads that work it off, several at once where the
processor gains by it. Knows the order and who may go together; what a verdict means is its Access's business.

    put (control thread) -> waiting -> a thread takes what goes together -> is_due? -> Checker.match -> checked

Invariants: first come, first served; nothing is lost: a thread is told of work after it was queued, unless so many
are told already as there are threads; of one user only one is checked at a time in a thread, so that a guesser's
pause begins before the next guess. Cost: some 10 us of Python besides the hash.
"""

from collections import deque

from mosq.auth.hashes import Checker, Hash
from mosq.auth.pool import Pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.server.access import Access


class Check:
    """One log-in."""

    __slots__ = ("access", "handle", "user", "password", "address", "hash", "known", "key", "deadline")

    def __init__(                       # parameters: a record; each is one slot
            self, access: "Access", handle: int, user: str, password: bytes, address: str, hash: Hash, known: bool,
            key: bytes | None, deadline: float) -> None:
        """`hash` may be a decoy: `known` says whether there is such a user. `key`: under which a verdict is kept."""
        self.access, self.handle, self.user, self.password, self.address = access, handle, user, password, address
        self.hash, self.known, self.key, self.deadline = hash, known, key, deadline


class Checks:
    """`put` never waits."""

    def __init__(self, threads: int, waiting_max: int, when_idle: "Callable[[], None]", failed: "Callable[[str], None]"
                 ) -> None:
        self._waiting: deque[Check] = deque()
        self._threads, self._failed = threads, failed
        self._checker = Checker()
        self._closing = False
        self.pool = Pool("hash", threads, waiting_max, when_idle, failed)

    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, check: Check) -> None:
        """The caller has looked whether there are too many."""
        self._waiting.append(check)
        if self.pool.waiting() < self._threads:
            self.pool.put(self._work_off)

    def close(self, within_s: float) -> bool:
        self._closing = True
        try:
            while True:                 # whoever waits is told so
                check = self._waiting.popleft()
                check.access.unchecked(check)
        except IndexError:
            pass
        return self.pool.close(within_s)

    def _work_off(self) -> None:
        """Until there is nothing more to do. In a thread of the pool."""
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
        """Those that are hashed together, in the order in which they came."""
        together: list[Check] = []
        while len(together) < self._checker.width:
            try:
                check = self._waiting.popleft()
            except IndexError:
                break
            if together and (not self._checker.alike(together[0].hash, check.hash)
                             or any(other.user == check.user for other in together)):
                self._waiting.appendleft(check)
                break
            if check.access.is_due(check):
                together.append(check)
        return together
