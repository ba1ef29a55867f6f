"""Orders the logins that wait, and bounds their number and their memory. Networks get their turns one after the other,
so a flood from one delays the login of another by one turn. Knows neither requests nor threads of work.

  put -> the line of its network -> take: the first login of the network whose turn it is

Invariants:
- A login whose user has logged in from its address before is known. While both kinds wait, known ones get three turns
  of four.
- If number or bytes exceed their bounds, a network that holds most loses its newest login: one with at least half as
  many bytes as any other, not known ones before known ones. It may be the login that was just put.
Cost: O(1), whatever the number of networks.
"""

import threading
from collections import OrderedDict, deque
from sys import getsizeof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Key = tuple[bool, bytes]            # is it known, network

LOGIN_BYTES = 1000                      # of the objects of a login without its strings
TURNS_OF_KNOWN = 3                      # before one turn of the others


class Line:
    """The waiting logins of one network."""

    __slots__ = ("logins", "bytes")

    def __init__(self) -> None:
        self.logins: deque[tuple[Any, int]] = deque()     # login, its bytes
        self.bytes = 0


class Turns:
    """The waiting logins of all networks. Several threads may call it."""

    def __init__(self, waiting_max: int, network_max: int | None = None, bytes_max: int = 0) -> None:
        """`waiting_max`: logins that may wait; `network_max`: those of one network, None: any number; `bytes_max`:
        memory of all, 0: no bound. `bytes_max` may change later."""
        self.waiting_max, self.network_max, self.bytes_max = waiting_max, network_max, bytes_max
        self.bytes = 0
        self._n = self._turns_of_known = 0
        # the lines of each kind in the order of their turns
        self._lines: dict[bool, OrderedDict[bytes, Line]] = {known: OrderedDict() for known in (False, True)}
        # (is not known, bit length of the bytes) -> the lines of this size
        self._sizes: dict[tuple[bool, int], dict[Key, None]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._n

    def put(self, network: bytes, login: "Any", bytes: int = 1, known: bool = False) -> "list[Any]":
        """Let a login wait. Return those that find no room any more; the caller refuses them."""
        key, lost = (known, network), []
        with self._lock:
            line = self._lines[known].get(network)
            if line is None:
                line = self._lines[known][network] = Line()
            elif self.network_max is not None and len(line.logins) >= self.network_max:
                return [login]
            line.logins.append((login, bytes))
            self._count(key, line, bytes)
            while self._n > self.waiting_max or (self.bytes_max and self.bytes > self.bytes_max):
                most = self._sizes[max(self._sizes)]
                loser = key if key in most else next(iter(most))
                lost.append(self._remove(loser, -1))
        return lost

    def take(self, fits: "Callable[[Any], bool] | None" = None) -> "Any":
        """Return the login whose turn it is; None if there is none, or if it does not fit: then it keeps its turn."""
        with self._lock:
            if not self._n:
                return None
            known = bool(self._lines[True]) and (self._turns_of_known < TURNS_OF_KNOWN or not self._lines[False])
            lines = self._lines[known]
            network, line = next(iter(lines.items()))
            if fits is not None and not fits(line.logins[0][0]):
                return None
            self._turns_of_known = self._turns_of_known + 1 if known and self._lines[False] else 0
            lines.move_to_end(network)
            return self._remove((known, network), 0)

    def give_up(self, network: bytes, login: "Any", known: bool = False) -> bool:
        """Remove a login. Return whether it waited."""
        with self._lock:
            line = self._lines[known].get(network)
            place = next((i for i, (one, _) in enumerate(line.logins) if one is login), -1) if line is not None else -1
            if place >= 0:
                self._remove((known, network), place)
            return place >= 0

    def take_late(self, is_late: "Callable[[Any], bool]") -> "list[Any]":
        """Remove and return the logins that are late, from the front of each network. Cost: O(networks)."""
        late = []
        with self._lock:
            for known, lines in self._lines.items():
                for network, line in tuple(lines.items()):
                    while line.logins and is_late(line.logins[0][0]):
                        late.append(self._remove((known, network), 0))
        return late

    def _remove(self, key: "Key", place: int) -> "Any":
        line = self._lines[key[0]][key[1]]
        login, bytes = line.logins[place]
        del line.logins[place]
        self._count(key, line, -bytes)
        if not line.logins:
            del self._lines[key[0]][key[1]]
        return login

    def _count(self, key: "Key", line: Line, bytes: int) -> None:
        """Count a login that came (bytes > 0) or went (bytes < 0), and find the line's new size."""
        old, new = (not key[0], line.bytes.bit_length()), (not key[0], (line.bytes + bytes).bit_length())
        line.bytes += bytes
        self.bytes += bytes
        self._n += 1 if bytes > 0 else -1
        if old == new:
            return
        self._sizes.get(old, {}).pop(key, None)
        if not self._sizes.get(old, True):
            del self._sizes[old]
        if line.bytes:
            self._sizes.setdefault(new, {})[key] = None


def bytes_of(fields: "Iterable[object]") -> int:
    """Return the memory of a login with these fields. A string with one emoji has four bytes for each character."""
    return LOGIN_BYTES + sum(getsizeof(value) for field in fields
                             for value in (field.values() if isinstance(field, dict) else (field,)))
