"""The rights of clients that a plugin has let in, in tables that are bounded in bytes. Knows names of clients only as
keyed hashes. Knows neither tokens nor topics.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

CLIENT_BYTES = 1024                     # one client and its user without the claims, rounded up
CLAIMS_BYTES = 512                      # equal claims of any number of clients, without their text
REMOVED_BITS = 1 << 26                  # 8 MiB, and nothing before the first removal
DIGEST_BYTES = 16                       # of the hashes of names


class Client(NamedTuple):
    """Keyed hashes of a user name, and of user name and client id: their length does not depend on the client."""

    user: bytes
    name: bytes


class Removed:
    """Remembers users whose rights were removed: four bits of a keyed hash each. It never forgets one; `in` may be
    true for another user too. Users, because a user with one token can have any number of client ids."""

    def __init__(self) -> None:
        self._bits = bytearray()        # empty until the first user

    def add(self, user: bytes) -> None:
        self._bits = self._bits or bytearray(REMOVED_BITS // 8)
        for place, bit in self._places(user):
            self._bits[place] |= bit

    def __contains__(self, user: bytes) -> bool:
        return bool(self._bits) and all(self._bits[place] & bit for place, bit in self._places(user))

    @staticmethod
    def _places(user: bytes) -> list[tuple[int, int]]:
        numbers = (int.from_bytes(user[i:i + 4]) % REMOVED_BITS for i in range(0, DIGEST_BYTES, 4))
        return [(n >> 3, 1 << (n & 7)) for n in numbers]


class Claims(NamedTuple):
    """The filters of a token in UTF-8, with a zero byte between two of them."""

    publ: bytes
    subs: bytes


class Rights:
    """The claims of a client's token, and the number of its open connections: two during a take-over."""

    __slots__ = ("claims", "connections")

    def __init__(self, claims: Claims) -> None:
        self.claims, self.connections = claims, 0


class Known:
    """The rights of some clients, in at most `bytes_max` bytes. Equal claims are stored once. The user with most
    clients makes room, with the client that was used least recently."""

    def __init__(self, bytes_max: int, removed: Removed) -> None:
        self.bytes, self._bytes_max, self._removed = 0, bytes_max, removed
        self._users: dict[bytes, OrderedDict[bytes, Rights]] = {}
        self._claims: dict[Claims, list[Any]] = {}              # claims -> the shared object, number of clients
        # number of clients -> users who have so many; the one that was used least recently is first
        self._ranks: dict[int, OrderedDict[bytes, None]] = {}
        self._most = 0                                          # the largest key of `_ranks`

    def get(self, client: Client) -> Rights | None:
        clients = self._users.get(client.user)
        if clients is None or client.name not in clients:
            return None
        clients.move_to_end(client.name)
        self._ranks[len(clients)].move_to_end(client.user)
        return clients[client.name]

    def add(self, client: Client, rights: Rights) -> None:
        """Add a client that is not known."""
        clients = self._users.setdefault(client.user, OrderedDict())
        clients[client.name] = rights
        self._rank(client.user, len(clients) - 1, len(clients))
        self.bytes += CLIENT_BYTES
        self._hold(rights)
        self._make_room()

    def change(self, rights: Rights, claims: Claims) -> None:
        """Give a known client other claims."""
        self._release(rights)
        rights.claims = claims
        self._hold(rights)
        self._make_room()

    def pop(self, client: Client) -> Rights | None:
        clients = self._users.get(client.user)
        rights = None if clients is None else clients.pop(client.name, None)
        if clients is None or rights is None:
            return None
        self._rank(client.user, len(clients) + 1, len(clients))
        if not clients:
            del self._users[client.user]
        self.bytes -= CLIENT_BYTES
        self._release(rights)
        return rights

    def _make_room(self) -> None:
        while self.bytes > self._bytes_max and self._users:
            user = next(iter(self._ranks[self._most]))
            self._removed.add(user)
            self.pop(Client(user, next(iter(self._users[user]))))

    def _rank(self, user: bytes, old: int, new: int) -> None:
        """Note that the user has `new` clients instead of `old`, one more or one less."""
        if new:
            self._ranks.setdefault(new, OrderedDict())[user] = None
        if old:
            del self._ranks[old][user]
            if not self._ranks[old]:
                del self._ranks[old]
        self._most = new if new > self._most or self._most not in self._ranks else self._most

    def _hold(self, rights: Rights) -> None:
        held = self._claims.setdefault(rights.claims, [rights.claims, 0])
        rights.claims = held[0]
        held[1] += 1
        if held[1] == 1:
            self.bytes += _size(rights.claims)

    def _release(self, rights: Rights) -> None:
        held = self._claims[rights.claims]
        held[1] -= 1
        if not held[1]:
            del self._claims[rights.claims]
            self.bytes -= _size(rights.claims)


def _size(claims: Claims) -> int:
    return CLAIMS_BYTES + len(claims.publ) + len(claims.subs)
