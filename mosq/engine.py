"""The only module that imports the compiled package: all others in ``mosq/`` take the engine from here."""

TYPE_CHECKING = False       # typing itself is slow to load
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from mosq.records import (
        Answer,
        HotNames,
        LogLine,
        Request,
        SessionDetail,
        SessionSlice,
        SlowSlice,
        SubscriptionListing,
        TraceEvent,
        WholeFigures,
    )

    SettingValue = int | str | bytes | bool | tuple[str, ...]
    Security = dict[str, Any]       # see cext/setup/security.pyx
    ListenerSpec = dict[str, Any]   # see cext/setup/listeners.pyx
    BridgeSpec = dict[str, Any]       # see cext/setup/bridges.pyx

    class Lanes(Protocol):
        """cext/setup/pbkdf2.pyx"""

        def lanes(self) -> int: ...
        def derive(self, keys: list[bytes], firsts: list[bytes], iterations: int, width: int = 0) -> list[bytes]:
            ...

    class Renewal(Protocol):
        """A new configuration that is checked; see Engine.prepare_reload."""

        def commit(self) -> None: ...

    class Engine(Protocol):
        """The methods of ``mosq._core.Engine`` (cext/engine.pyx) that the control plane uses.

        Tests replace it with a fake.
        """

        def open(self, shared: "list[list[int]] | None" = None) -> None: ...
        def join(self, place: int, key: bytes, passages: "list[int]", news: "list[int]", counts_fd: int,
                 parent_status: int = -1, reloads: int = 0) -> None: ...
        def begin_reload(self, reloads: int) -> None: ...
        def link(self, place: int, out_fd: int, in_fd: int) -> None: ...
        def wire(self, place: int, what: int, fd: int = -1, strangers_fd: int = -1,     # parameters: of a WireOrder
                 key: bytes = b"", ip: bytes = b"", port: int = 0, scope: int = 0) -> None: ...
        def wires_fd(self) -> int: ...
        def links_wanted(self) -> list[int]: ...
        def attach(self, directory: str, durability: str = "group", interval_ms: int = 2) -> None: ...
        def persist(self, directory: str, durability: str = "group", interval_ms: int = 2,
                    segment_bytes: int = 0, streams: "Sequence[dict[str, Any]]" = (),
                    files: object = None) -> "dict[str, Any]": ...
        def run(self, started: "Callable[[], None] | None" = None) -> None: ...
        def moves(self) -> None: ...
        def stop(self) -> None: ...
        def event_fd(self) -> int: ...
        def watch_reload(self, number: int) -> int: ...
        def hold_connects(self, held: bool) -> None: ...
        def drain(self) -> list[LogLine]: ...
        def requests(self) -> list[Request]: ...
        def ports(self) -> list[int]: ...
        def adopt(self, fd: int) -> None: ...
        rules_set: int
        def sealing_listeners(self) -> list[int]: ...
        def freeze(self, sealing: list[int] | tuple[()] = ()) -> tuple[int, bytes, dict[str, Any]]: ...
        def thaw(self) -> None: ...
        def leave(self) -> None: ...
        def listening(self) -> list[tuple[int, list[int]]]: ...
        def arrive(self, state_fd: int, fds: bytes, listening: list[tuple[int, list[int]]]) -> dict[str, int]: ...
        def stats(self) -> dict[str, int]: ...
        def observed(self) -> dict[str, Any] | None: ...
        def hot(self, what: str) -> HotNames | None: ...
        def slow(self, position: int = 0, limits: tuple[int, int, int, int] = (0, 0, 0, 0)) -> SlowSlice: ...
        def streams(self) -> dict[str, dict[str, int]]: ...
        def drop_examples(self) -> dict[str, dict[str, Any]]: ...
        def listener_drops(self) -> dict[str, dict[str, int]]: ...
        def whole(self) -> WholeFigures: ...
        def note_logins(self, failed: int, refused: int) -> None: ...
        def replace_passage(self, place: int, fd: int) -> None: ...
        def link_figures(self) -> list[dict[str, int]]: ...
        def clients(self) -> "list[dict[str, Any]]": ...
        def subscriptions(self, most: int = 100_000) -> SubscriptionListing: ...
        def answer(self, answers: "Sequence[Answer]") -> None: ...
        def kick(self, client_id: str) -> bool: ...
        def trace(self, spec: "dict[str, Any]") -> tuple[int, int]: ...
        def trace_stop(self, number: int) -> bool: ...
        def trace_events(self) -> list[TraceEvent]: ...
        def trace_losses(self, slot: int) -> tuple[int, int]: ...
        def bridge(self, name: str, what: str, sockaddr: "tuple[int, str, int] | None" = None, host: str | None = None,
                 try_private: bool = False, fd: int = -1) -> None: ...
        def bridges(self) -> "list[dict[str, Any]]": ...
        def set_roles(self, spec: "dict[str, Any]", places: "list[int]") -> None: ...
        def sessions(self, cursor: int = 0, most: int = 1000) -> SessionSlice: ...
        def session(self, client_id: str, skip: int = 0) -> "SessionDetail | None": ...
        def reload(self, settings: "dict[str, SettingValue]", listeners: "list[ListenerSpec]",
                   securities: "list[Security]", bridges: "list[BridgeSpec]" = ...) -> None: ...
        def prepare_reload(self, settings: "dict[str, SettingValue]", listeners: "list[ListenerSpec]",
                           securities: "list[Security]", bridges: "list[BridgeSpec]" = ...) -> Renewal: ...


def compact_records_refusal() -> str:
    """Return why `tls_compact_records` cannot be in force; "" if it can. It loads OpenSSL."""
    from mosq._tls import compact_refusal

    return str(compact_refusal())


def load() -> None:
    """Load the compiled engine. Raises ImportError if it is not built, or not for this machine."""
    __import__("mosq._core")


def new_engine(
    settings: "dict[str, SettingValue]", listeners: "list[ListenerSpec]", securities: "list[Security]",
    bridges: "list[BridgeSpec] | tuple[()]" = (),
) -> "Engine":
    """Return the compiled engine; raises ValueError for invalid settings. It is loaded on first use, so ``--help`` and
    ``--test-config`` do not need it."""
    from mosq._core import Engine as CompiledEngine

    engine: "Engine" = CompiledEngine(settings, listeners, securities, bridges)
    return engine


def password_lanes() -> "Lanes | None":
    """Return the module that hashes several passwords at once. None if that gains nothing on this processor, or without
    the compiled package, which `mosq passwd` does not need."""
    try:
        from mosq import _core
    except ImportError:
        return None
    return _core if _core.lanes() > 1 else None


def worker_place(key: bytes, name: bytes, n: int) -> int:
    """Return the place, from 0, of the worker of `n` that a client id or a topic belongs to."""
    from mosq import _core

    place: int = _core.worker_place(key, name, n)
    return place


def counts_bytes() -> int:
    """Return the bytes of the memory for the counts of all workers."""
    from mosq import _core

    return _core.counts_bytes()


def counts_ended(counts_fd: int, place: int) -> None:
    """Note in the memory for counts that the process of a worker has ended. Raises OSError."""
    from mosq import _core

    _core.counts_ended(counts_fd, place)


def reload_counted(counts_fd: int) -> int:
    """Let all workers hold new clients until a reload that covers this SIGHUP is over; return how many SIGHUPs there
    were. Raises OSError."""
    from mosq import _core

    return _core.reload_counted(counts_fd)


def continue_when_parent_ends() -> None:
    """Let the system continue this process, if it is stopped, when its parent ends. A change of the user clears
    this."""
    from mosq import _core

    _core.continue_when_parent_ends()


def obey_lease(fd: int, period_ms: int) -> None:
    """Let the system kill this process at the time in the shared memory `fd`, in nanoseconds of CLOCK_BOOTTIME, also if
    the process is stopped then. The time is read every `period_ms`. Raises OSError."""
    from mosq import _core

    _core.obey_lease(fd, period_ms)


def watch_signal(number: int) -> int:
    """Return a descriptor that is readable while the blocked signal is pending; reading from it takes the signal.
    Raises OSError."""
    from mosq import _core

    return _core.watch_signal(number)


def sockets_of(spec: "ListenerSpec", nodelay: bool) -> "list[_socket.socket]":
    """Return the bound sockets of an MQTT listener, which listen and do not block. Raises OSError."""
    from mosq import _core

    found: list[_socket.socket] = _core.sockets_of(spec, nodelay)
    return found


def bind_sockets(port: int, host: str | None, path: str | None, socket_domain: str,
                 bind_interface: str | None) -> "list[_socket.socket]":
    """Return bound sockets that listen and do not block, for listeners that the control plane serves. Raises OSError
    with the address in its text."""
    return sockets_of({"port": port, "host": host, "path": path, "socket_domain": socket_domain,
                       "bind_interface": bind_interface}, True)


def close_sockets(sockets: "list[_socket.socket]") -> None:
    """Close the sockets of bind_sockets, and remove the files of unix sockets."""
    from mosq import _core

    _core.close(sockets)
