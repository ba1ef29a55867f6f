"""Logs failed logins by HTTP: the first of a network at once, the others as a count once in EVERY_S. So a flood of
guesses writes few lines: at most 2 * NETWORKS_MAX + 1 in EVERY_S seconds. Knows neither requests nor passwords.
"""

import asyncio

from mosq.auth.networks import subscriber_of
from mosq.log_types import NOTICE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 60.0
NETWORKS_MAX = 16               # networks with lines of their own; the others share one count
SHOWN_MAX = 100                 # characters of a user name


class FailedLogins:
    """The failed logins of one server. Its methods are called on the server's loop."""

    def __init__(self, report: "Callable[[int, str], None]") -> None:
        self._report = report
        self._counts: dict[bytes, tuple[str, int]] = {}     # network -> its address, failures without a line
        self._others = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, address: str, user: str) -> None:
        """Count a failed login."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._next)
        network = subscriber_of(address)
        if network in self._counts:
            first, n = self._counts[network]
            self._counts[network] = first, n + 1
        elif len(self._counts) < NETWORKS_MAX:
            self._counts[network] = address, 0
            name = user if len(user) <= SHOWN_MAX else f"{user[:SHOWN_MAX]}..."
            # the address comes first: a name may look like the rest of a line
            self._report(NOTICE, f"HTTP login from {_named(address)} as '{name}' failed.")
        else:
            self._others += 1

    def _next(self) -> None:
        """Log the counts, and begin the next time. A network that had no failure loses its place."""
        self._timer = None
        for address, n in self._counts.values():
            if n:
                self._report(NOTICE, f"{_logins(n)} from {_named(address)} failed since the last line about them.")
        if self._others:
            self._report(NOTICE, f"{_logins(self._others)} from other addresses failed since the last line about them.")
        self._counts = {network: (address, 0) for network, (address, n) in self._counts.items() if n}
        self._others = 0
        if self._counts:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._next)

    def close(self) -> None:
        """Log the counts now; no call follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._next()
        if self._timer is not None:
            self._timer.cancel()


def _logins(n: int) -> str:
    return f"{n} more HTTP login{'' if n == 1 else 's'}"


def _named(address: str) -> str:
    return address or "this machine"
