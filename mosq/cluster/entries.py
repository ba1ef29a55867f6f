"""The texts in Redis and their meaning: an entry of the table of workers, the beat of a node, and what it announces.

    entry of a worker    "TOKEN NAME RUN" (a node runs it), "TOKEN" (its node gave it up), "" (it never ran)
    beat of a node       "RUN NUMBER"
    announcement         JSON

A RUN is random and names one life of a node's agent. A TOKEN names one start of a worker. It grows with each start, and
its lower bits are random: if Redis loses its last writes, the next claim does not repeat a token that was lost.
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RANDOM_BITS = 24                # of a token, the lower ones
TOKEN_BITS = 53                 # Lua's numbers keep so many: the store of a worker may compare tokens there
CAPACITY_MAX, PORT_MAX = 1000, 65535
ANNOUNCEMENT_MAX = 65536        # bytes
NUMBER_DIGITS = 15              # of a beat, at most: Lua's numbers keep so many
ALL = "all of them"             # fields of an announcement that could not be used
LARGE = "bytes: "               # in place of a longer one: it would be read with each beat
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
NAME_RULE = "1 to 64 letters, digits, dots, underscores or hyphens, with a letter or digit in front"


class Entry(NamedTuple):
    """A worker in the table. `name` and `run` are empty if no node has it."""

    token: int
    name: str
    run: str


NEVER = Entry(0, "", "")


@lru_cache(4096)
def entry_of(text: str) -> Entry:
    """Read an entry of the table. Raises ValueError."""
    if not text:
        return NEVER
    token, *owner = text.split(" ")
    if not (token.isascii() and token.isdecimal() and int(token) < 1 << TOKEN_BITS and len(owner) in (0, 2)):
        raise ValueError(f"no entry of a worker: {text!r}")
    name, run = owner or ("", "")
    return Entry(int(token), name, run)


def text_of(entry: Entry) -> str:
    """Return the entry as it is written."""
    return f"{entry.token} {entry.name} {entry.run}" if entry.name else f"{entry.token}"


def next_token(token: int, bits: int) -> int:
    """Return a token above another one. `bits`: RANDOM_BITS random bits."""
    return ((token >> RANDOM_BITS) + 1 << RANDOM_BITS) + bits


def run_of(beat: str) -> str:
    """Return the run of a beat."""
    return beat.partition(" ")[0]


def number_of(beat: str) -> int | None:
    """Return the number of a beat; None if another program has damaged it."""
    number = beat.partition(" ")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS else None


@dataclass(frozen=True)
class Announcement:
    """The facts that a node announces about itself."""

    capacity: int = 1           # its part of the workers, in proportion to those of the other nodes
    leaving: bool = False       # it gives its workers away
    protocols: tuple[int, int] = (1, 1)     # the lowest and the highest protocol of a cluster that it knows
    version: str = ""           # of mosq
    address: str = ""           # for other nodes: `HOST PORT`; empty: no other node can reach its workers
    unable: tuple[int, ...] = ()        # workers, from 0, that could not start on it

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= CAPACITY_MAX:
            raise ValueError(f"the capacity of a node is a number from 1 to {CAPACITY_MAX}")

    @cached_property
    def text(self) -> str:
        """Return it as it is written."""
        return json.dumps(asdict(self), separators=(",", ":"))


@lru_cache(1024)
def read_announcement(text: str) -> tuple[Announcement, str]:
    """Read an announcement, perhaps of a later version of mosq. Return it, and the names of fields that could not be
    used; they have their defaults. So one strange node does not end the others. Unknown fields are left out."""
    try:
        fields = json.loads(text) if len(text) <= ANNOUNCEMENT_MAX else None
    except (ValueError, RecursionError):        # of nested lists
        fields = None
    if not isinstance(fields, dict):
        return Announcement(), ALL
    usable = {name: fields[name] for name, fits in _FITS.items() if name in fields and fits(fields[name])}
    usable |= {name: tuple(value) for name, value in usable.items() if type(value) is list}
    return Announcement(**usable), ", ".join(name for name in _FITS if name in fields and name not in usable)


def strange_text(name: str, text: str) -> str:
    """Return why something in the announcement of a node cannot be used, as a sentence; "" if all can be."""
    strange = read_announcement(text)[1]
    if text.startswith(LARGE):
        return (f"The announcement of the node {name} in Redis has {text.removeprefix(LARGE)} bytes, and none has more "
                f"than {ANNOUNCEMENT_MAX}: another program has written it. It counts as empty; a node that lives "
                "replaces it.")
    return strange and (f"The node {name} announces values that this version of mosq does not understand and leaves "
                        f"out: {strange}. Upgrade the older nodes.")


def announcement_of(text: str) -> Announcement:
    """Return an announcement without what could not be used in it."""
    return read_announcement(text)[0]


def is_known(text: str) -> bool:
    """Return whether an announcement is there and can be read. A node that lives replaces another one."""
    return read_announcement(text)[1] != ALL


def place_in(address: str, worker: int) -> tuple[str, int] | None:
    """Return the host and the port of a worker, whose node announces `HOST PORT`; None for another text."""
    host, _, port = address.partition(" ")
    if not (host and port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= PORT_MAX - worker):
        return None
    return host, int(port) + worker


def _is_number(value: object, most: float = float("inf")) -> bool:
    return type(value) is int and 1 <= value <= most


_FITS: "dict[str, Callable[[Any], bool]]" = {       # field of an announcement -> whether a value can be used
    "capacity": lambda value: _is_number(value, CAPACITY_MAX),
    "leaving": lambda value: type(value) is bool,
    "protocols": lambda value: type(value) is list and len(value) == 2 and all(map(_is_number, value)),
    "version": lambda value: type(value) is str,
    "address": lambda value: type(value) is str and (not value or place_in(value, 0) is not None),
    "unable": lambda value: type(value) is list and all(type(one) is int and one >= 0 for one in value),
}


def check_name(name: str, of_what: str) -> str:
    """Return the name of a node or cluster. Raises ValueError if it may not be used."""
    if NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a {of_what} has {NAME_RULE}")
    return name
