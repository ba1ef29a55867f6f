"""Gives places to logins: a few are checked at a time, the others wait. Networks get places in turn (turns.py), so a
flood of guesses from one delays the login of another by one check. Knows neither requests nor connections.
"""

import asyncio

from mosq.auth.turns import Turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WAITING_MAX = 10_000            # logins of all networks; the server has fewer connections


class BusyError(RuntimeError):
    """A login got no place: too many of its network wait, its client has gone, the wait was too long, or a reload has
    replaced the server."""


class Logins:
    """The places of the logins that are checked at a time."""

    def __init__(self, places: int, waiting_max: int, within_s: float) -> None:
        """`waiting_max`: logins of one network that may wait. `within_s`: the longest wait, in seconds."""
        self.free, self.within_s = places, within_s
        self.waiting = Turns(WAITING_MAX, waiting_max)

    async def enter(self, network: bytes, waits: "Callable[[asyncio.Future[bool]], None]") -> None:
        """Take a place; the caller calls `leave`. If there is none, `waits` gets a future, and the login waits until it
        is done: True gives the place, and the caller sets False to give up. Raises BusyError."""
        if self.free:
            self.free -= 1
            return
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for lost in self.waiting.put(network, place):
            if lost is place:
                raise BusyError
            if not lost.done():
                lost.set_result(False)
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
        """Give the place to the login whose turn it is."""
        self.waiting.take_late(asyncio.Future.done)     # their clients have gone
        place = self.waiting.take()
        if place is None:
            self.free += 1
        else:
            place.set_result(True)

    def _give_up(self, network: bytes, place: "asyncio.Future[bool]") -> None:
        if not self.waiting.give_up(network, place) and place.done() and not place.cancelled() and place.result():
            self.leave()        # the request was cancelled after it got the place
