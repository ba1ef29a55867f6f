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

RANDOM_BITS = 24                # of a token, the lower ones
TOKEN_BITS = 53                 # Lua's numbers keep so many: the store of a worker may compare tokens there
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


@dataclass(frozen=True)
class Announcement:
    """The facts that a node announces about itself."""

    capacity: int = 1           # its part of the workers, in proportion to those of the other nodes
    leaving: bool = False       # it gives its workers away
    protocols: tuple[int, int] = (1, 1)     # the lowest and the highest protocol of a cluster that it knows
    version: str = ""           # of mosq
    address: str = ""           # for other nodes

    def __post_init__(self) -> None:
        if not 1 <= self.capacity <= 1000:
            raise ValueError("the capacity of a node is a number from 1 to 1000")

    @cached_property
    def text(self) -> str:
        """Return it as it is written."""
        return json.dumps(asdict(self), separators=(",", ":"))


@lru_cache(1024)
def announcement_of(text: str) -> Announcement:
    """Read an announcement. Fields of a later version of mosq are left out. Raises ValueError."""
    fields = json.loads(text)
    known = {name: fields[name] for name in Announcement.__dataclass_fields__ if name in fields}
    low, high = known.pop("protocols", (1, 1))
    return Announcement(protocols=(int(low), int(high)), **known)


def check_name(name: str, of_what: str) -> str:
    """Return the name of a node or cluster. Raises ValueError if it may not be used."""
    if NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a {of_what} has {NAME_RULE}")
    return name
