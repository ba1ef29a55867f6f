"""Gives places to logins: a few are checked at a time, the others wait. Networks get places in turn, so a flood of
guesses from one delays the login of another by one check. Knows neither requests nor connections.
"""

import asyncio
from collections import deque

from cachetools import LRUCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NETWORKS_MAX = 1024             # networks with a remembered last turn; more than can wait at a time


class BusyError(Exception):
    """A login got no place: too many of its network wait, its client has gone, or the wait was too long."""


class Logins:
    """The places of the logins that are checked at a time."""

    def __init__(self, places: int, waiting_max: int, within_s: float) -> None:
        """`waiting_max`: logins of one network that may wait. `within_s`: the longest wait, in seconds."""
        self.free, self.waiting_max, self.within_s = places, waiting_max, within_s
        self.waiting: dict[bytes, deque[asyncio.Future[bool]]] = {}
        self.turn = 0
        self.served: LRUCache[bytes, int] = LRUCache(NETWORKS_MAX)     # network -> its last turn

    async def enter(self, network: bytes, waits: "Callable[[asyncio.Future[bool]], None]") -> None:
        """Take a place; the caller calls `leave`. If there is none, `waits` gets a future, and the login waits until it
        is done: True gives the place, and the caller sets False to give up. Raises BusyError."""
        if self.free:
            self.free -= 1
            self._serve(network)
            return
        queue = self.waiting.setdefault(network, deque())
        if len(queue) >= self.waiting_max:
            raise BusyError
        self.served.setdefault(network, self.turn)
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        queue.append(place)
        waits(place)
        entered = False
        try:
            entered = await asyncio.wait_for(place, self.within_s)
        except TimeoutError:
            pass
        finally:
            if not entered:
                self._give_up(network, place)
        if not entered:
            raise BusyError

    def leave(self) -> None:
        """Give the place to the network whose last turn is longest ago."""
        while self.waiting:
            network = min(self.waiting, key=lambda one: self.served.get(one, 0))
            place = self.waiting[network].popleft()
            if not self.waiting[network]:
                del self.waiting[network]
            if not place.done():
                self._serve(network)
                place.set_result(True)
                return
        self.free += 1

    def _serve(self, network: bytes) -> None:
        self.turn += 1
        self.served[network] = self.turn

    def _give_up(self, network: bytes, place: "asyncio.Future[bool]") -> None:
        queue = self.waiting.get(network)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self.waiting[network]
        elif place.done() and not place.cancelled() and place.result():
            self.leave()        # the request was cancelled after it got the place
