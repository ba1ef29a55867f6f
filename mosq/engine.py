"""The only importer of the compiled package: everybody else in ``mosq/`` takes the engine from here."""

TYPE_CHECKING = False       # typing itself is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    # ('log', wall clock seconds, one bit of mosq.log.TYPES, text)
    Event = tuple[str, int, int, str]
    SettingValue = int | str | bytes | bool
    Security = dict[str, Any]       # see cext/setup/security.pyx
    ListenerSpec = dict[str, Any]   # see cext/setup/doors.pyx
    LinkSpec = dict[str, Any]       # see cext/setup/links.pyx

    class Lanes(Protocol):
        """cext/setup/pbkdf2.pyx"""

        def lanes(self) -> int: ...
        def derive(self, keys: list[bytes], firsts: list[bytes], iterations: int, width: int = 0) -> list[bytes]:
            ...

    class Engine(Protocol):
        """What the control plane needs of ``cext.engine.Engine``; tests put a fake in its place."""

        def open(self) -> None: ...
        def run(self, started: "Callable[[], None] | None" = None) -> None: ...
        def stop(self) -> None: ...
        def event_fd(self) -> int: ...
        def drain(self) -> list[Event]: ...
        def requests(self) -> "list[tuple[Any, ...]]": ...
        def ports(self) -> list[int]: ...
        def adopt(self, fd: int) -> None: ...
        def stats(self) -> dict[str, int]: ...
        def clients(self) -> "list[dict[str, Any]]": ...
        def subscriptions(self, most: int = 100_000) -> tuple[list[tuple[str, str, int]], int]: ...
        def answer(self, answers: "list[tuple[Any, ...]]") -> None: ...
        def kick(self, client_id: str) -> bool: ...
        def link(self, name: str, what: str, sockaddr: "tuple[int, str, int] | None" = None, host: str | None = None,
                 try_private: bool = False, fd: int = -1) -> None: ...
        def links(self) -> "list[dict[str, Any]]": ...
        def reload(self, settings: "dict[str, SettingValue]", listeners: "list[ListenerSpec]",
                   securities: "list[Security]", links: "list[LinkSpec]" = ...) -> None: ...


def new_engine(
    settings: "dict[str, SettingValue]", listeners: "list[ListenerSpec]", securities: "list[Security]",
    links: "list[LinkSpec] | tuple[()]" = (),
) -> "Engine":
    """The compiled engine; raises ValueError on settings that make no sense. Loaded on first use, so that
    ``--help`` and ``--test-config`` do not need it."""
    from cext.engine import Engine as CompiledEngine

    engine: "Engine" = CompiledEngine(settings, listeners, securities, links)
    return engine


def password_lanes() -> "Lanes | None":
    """What hashes several passwords at once; None where that gains nothing: on this processor, or without the
    compiled package, which `mosq passwd` does not need."""
    try:
        from cext.setup import pbkdf2
    except ImportError:
        return None
    return pbkdf2 if pbkdf2.lanes() > 1 else None
