"""Declare attacks: what each sends, which broker it needs, and which other clients are measured while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from perf.attacks.scene import Scene

    Run = Callable[[Scene], None]

MEMORY_LIMIT = 100_000_000  # bytes; `memory_limit` of every broker under attack


@dataclass(frozen=True)
class Attack:
    """Hold one attack. `run` sends it from a process of its own; `prepare` runs before the victims are measured."""

    name: str
    what: str
    finding: str  # number in issue 16, "low", or "class": of the same class as a finding
    run: Run
    prepare: Run | None = None
    config: str = ""  # lines of mosquitto.conf; {port}, {dir}, {second}: a second free port
    listeners: tuple[str, ...] = ()  # in addition to plain TCP: tls, ws, http, proxy
    victims: tuple[str, ...] = ("ping", "publish", "login")  # http: a request
    tls: bool = False  # the victims use TLS
    descriptors: int = 0  # most open files of the broker; 0 = as this process
    memory_limit: int = MEMORY_LIMIT  # bytes
    mosquitto: bool = True  # also applies to Mosquitto 2.0
    may_refuse: bool = False  # clients that have logged in filled a limit, so the broker may refuse newcomers
    user: str = ""  # user name of the victims; the password is the same word


ATTACKS: dict[str, Attack] = {}


def attack(  # parameters: the fields of Attack, each with its default
    name: str,
    what: str,
    finding: str = "class",
    *,
    prepare: Run | None = None,
    config: str = "",
    listeners: tuple[str, ...] = (),
    victims: tuple[str, ...] = ("ping", "publish", "login"),
    tls: bool = False,
    descriptors: int = 0,
    memory_limit: int = MEMORY_LIMIT,
    mosquitto: bool = True,
    may_refuse: bool = False,
    user: str = "",
) -> Callable[[Run], Run]:
    """Return a decorator that adds a function to the table of attacks."""

    def add(run: Run) -> Run:
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(
            name,
            what,
            finding,
            run,
            prepare,
            config,
            listeners,
            victims,
            tls,
            descriptors,
            memory_limit,
            mosquitto,
            may_refuse,
            user,
        )
        return run

    return add
