"""Runs one plugin: its threads, its failures, the methods that it defines. Knows the plugin API, not the requests.

  put -> the pool, first come, first served       put_login -> turns.py -> the pool runs the login whose turn it is

Invariants: a plugin's calls run in its own threads, so a slow plugin delays only the clients of its requests. No
exception leaves this module: it is logged with type and place, once a minute for each method, and without its text,
which may contain a secret.
"""

import threading
from functools import partial
from time import monotonic

from mosq.auth.plugin import Broker, Plugin
from mosq.auth.pool import Pool
from mosq.auth.turns import Turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

EVENTS = ("connected", "disconnected", "subscribed", "unsubscribed")
METHODS = ("authenticate", "extended", "authorize", "message_in", "message_out", *EVENTS, "tick", "reload", "close")
# a native plugin is called with the data plane's requests, and has one method more: `subscribing`
REPORT_EVERY_S = 60.0
WAITING_MAX = 20_000
THREADS_MAX = 64


class PluginFailedError(Exception):
    """A plugin raised an exception or returned an invalid answer."""


class Login:
    """A login that waits for a thread of the plugin."""

    __slots__ = ("work", "refuse", "deadline")

    def __init__(self, work: "Callable[[], None]", refuse: "Callable[[], None]", deadline: float) -> None:
        """`refuse` is called if the login finds no room, or if the plugin ends. After `deadline` nothing is called,
        because the data plane has given it up."""
        self.work, self.refuse, self.deadline = work, refuse, deadline


class Runner:
    """One instance of a plugin. One or two `Access` objects hold it (two during a reload)."""

    def __init__(                       # parameters: the settings of a plugin
                 self, name: str, path: str, plugin: Plugin, options: dict[str, str], deny_special_chars: bool,
                 flush: "Callable[[], None]", warn: "Callable[[str], None]", pool: Pool | None = None) -> None:
        """`pool`: the thread in which a native plugin was initialized."""
        self.raw = bool(getattr(plugin, "raw", False))
        self.name, self.path, self.plugin, self.options = name, path, plugin, options
        self.deny_special_chars = deny_special_chars
        self.does: frozenset[str] = plugin.methods if self.raw else frozenset(     # type: ignore[attr-defined]
            m for m in METHODS if getattr(type(plugin), m) is not getattr(Plugin, m))
        # a native plugin that the loop calls was not asked about the filter if it left the access to others
        self.decides_filters = self.raw and "subscribing" in plugin.offers      # type: ignore[attr-defined]
        self.topics_in = tuple(plugin.topics_in) if "message_in" in self.does else ()
        self.topics_out = tuple(plugin.topics_out) if "message_out" in self.does else ()
        self.does_events = any(event in self.does for event in EVENTS)
        self._in = [tuple(f.split("/")) for f in self.topics_in]
        self._out = [tuple(f.split("/")) for f in self.topics_out]
        self.holders = 0
        self._warn = warn
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[int, float]] = {}       # method -> (failures since the last log line, its time)
        self._ticking = False
        self._beginning: set[int] = set()       # connections whose `connected` waits for a native plugin
        self.logins = Turns(WAITING_MAX)
        self._calls = 0                 # queued calls of `_next_login`: at least one for each waiting login
        self._calls_lock = threading.Lock()
        threads = max(1, min(THREADS_MAX, plugin.threads)) if plugin.concurrent else 1
        self._pool = pool or Pool(f"plugin-{name}"[:40], threads, WAITING_MAX, flush, partial(self.failed, "a call"))

    def wants(self, kind: str, topic: str) -> bool:
        """Return whether the plugin's `message_in` or `message_out` is called for this topic."""
        if self.raw:
            return kind in self.does
        filters = self._in if kind == "message_in" else self._out
        return bool(filters) and any(matches(filter, topic) for filter in filters)

    def put(self, work: "Callable[[], None]", instead: "Callable[[], None] | None" = None) -> bool:
        """Run `work` in the plugin's threads. False: too many calls wait. `instead` is called if the plugin ends
        first."""
        return self._pool.put(work, instead)

    def put_login(self, network: bytes, login: Login, held_bytes: int, trusted: bool) -> None:
        """Run a login in the plugin's threads when it is its turn, or refuse one for which there is no room."""
        with self._calls_lock:
            lost = self.logins.put(network, login, held_bytes, trusted)
            if self._calls < len(self.logins):
                if self._pool.put(self._next_login):
                    self._calls += 1
                elif self.logins.give_up(network, login, trusted):
                    lost.append(login)
        for one in lost:
            one.refuse()

    def _next_login(self) -> None:
        with self._calls_lock:
            self._calls -= 1
            login = self.logins.take()
        if login is not None:
            login.work()

    def call(self, method: str, argument: "Any") -> "Any":
        """Call a method; runs in a thread of the plugin. Raises PluginFailedError after logging the failure."""
        try:
            return getattr(self.plugin, method)(argument)
        except Exception as error:
            self.failed(method, _where(error))
            raise PluginFailedError from None

    def event(self, kind: str, argument: "Any") -> None:
        """Call the method of an event, if the plugin defines it."""
        if kind not in self.does:
            return
        if self.raw:
            self._native_event(kind, argument)
        elif not self._pool.put(partial(self._quietly, kind, argument)):
            self.failed(kind, "too many of them wait")

    def _native_event(self, kind: str, notice: "Any") -> None:
        """Report an event to a native plugin. The end of a client that the plugin knows, or whose begin waits, always
        finds room; so at most one of these waits for each known client."""
        plugin: Any = self.plugin
        connection = connection_of(notice)

        def call() -> None:
            self._quietly(kind, notice)
            self._beginning.discard(connection)

        forget = partial(plugin.forget, connection) if kind == "disconnected" else None
        ends = forget is not None and (connection in self._beginning or plugin.knows(connection))
        if kind == "connected":
            self._beginning.add(connection)
        if self._pool.put(call, forget, ends):
            return
        self._beginning.discard(connection)
        self.failed(kind, "too many of them wait")
        if forget is not None:
            forget()

    def tick(self, now: float, timeout_s: float) -> None:
        """Queue the plugin's `tick` and report a stuck call. The control thread calls this."""
        stuck_s = self._pool.running_for(now)
        if stuck_s > timeout_s:
            self.failed("a call", f"no answer for {stuck_s:.0f} s")
        if self.raw and (held_s := self.plugin.held_for(now)) > timeout_s:      # type: ignore[attr-defined]
            self.failed("a call on the loop", f"no answer for {held_s:.0f} s, and all clients wait")
        if self.logins.take_late(lambda login: now > login.deadline):       # their memory is free, also if a call hangs
            self.failed("connect", "requests waited longer than auth_timeout")
        if "tick" in self.does and not self._ticking:
            self._ticking = self._pool.put(self._tick)

    def reload(self, options: dict[str, str]) -> None:
        """Pass the new options to the plugin's `reload`."""
        self.options = options
        if "reload" in self.does:
            self._pool.put(partial(self._quietly, "reload", options))

    def close(self, within_s: float) -> None:
        """End the plugin. `within_s`: seconds to wait for its calls; 0: no wait, and no warning."""
        ended = self._pool.close(within_s, self._close if "close" in self.does else None)
        with self._calls_lock:
            self._calls = 0             # they are discarded: a login that comes now finds that the pool is closed
            waiting = self.logins.take_late(lambda login: True)
        for login in waiting:
            login.refuse()
        if within_s and not ended:
            self._warn(f"Warning: Plugin {self.name} did not stop in time.")

    def failed(self, method: str, how: str) -> None:
        """Log a failure, at most once a minute for each method."""
        now = monotonic()
        with self._lock:
            unlogged, logged_at = self._failures.get(method, (0, -REPORT_EVERY_S))
            if now - logged_at < REPORT_EVERY_S:
                self._failures[method] = unlogged + 1, logged_at
                return
            self._failures[method] = 0, now
        more = f" ({unlogged} more since the last report)" if unlogged else ""
        self._warn(f"Warning: Plugin {self.name} failed in {method}: {how}{more}.")

    def _tick(self) -> None:
        self._ticking = False
        try:
            self.plugin.tick()
        except Exception as error:
            self.failed("tick", _where(error))

    def _close(self) -> None:
        try:
            self.plugin.close()
        except Exception as error:
            self.failed("close", _where(error))

    def _quietly(self, method: str, argument: "Any") -> None:
        try:
            self.call(method, argument)
        except PluginFailedError:
            pass


def connection_of(request: "Any") -> int:
    """Return the number of the client's connection; 0: not known."""
    return 0 if request.facts is None else int.from_bytes(request.facts[:8], "little")


class PluginBroker(Broker):
    """The broker's services as a plugin sees them."""

    def __init__(self, name: str, publish: "Callable[[str, bytes, int, bool], None]", report: "Callable[[str], None]"
                 ) -> None:
        self._name, self._publish, self._report = name, publish, report

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        if not topic or "+" in topic or "#" in topic or "\0" in topic or len(topic.encode()) > 65535:
            raise ValueError("not a topic")
        if qos not in (0, 1, 2):
            raise ValueError("not a QoS")
        self._publish(topic, bytes(payload), qos, bool(retain))

    def log(self, text: str) -> None:
        self._report(f"Plugin {self._name}: {text}")


def matches(filter: tuple[str, ...], topic: str) -> bool:
    """Return whether a filter, as a tuple of levels, matches a topic [v5 4.7]."""
    levels = topic.split("/")
    if topic.startswith("$") and filter[0] in ("+", "#"):
        return False
    for i, level in enumerate(filter):
        if level == "#":
            return True
        if i == len(levels) or (level not in ("+", levels[i])):
            return False
    return len(filter) == len(levels)


def filled(filter: str, names: dict[str, str]) -> tuple[str, ...] | None:
    """Return the levels of a filter, with `%u` and `%c` replaced; a name with slashes becomes several levels. None: a
    name begins with `$` in the place of the first level, where it must not give rights to `$` topics."""
    made = "/".join(names.get(level, level) for level in filter.split("/"))
    return tuple(made.split("/")) if made.startswith("$") == filter.startswith("$") else None


def _where(error: BaseException) -> str:
    """Return the type of an exception and the line that raised it, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
