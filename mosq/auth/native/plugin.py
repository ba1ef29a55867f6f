"""A native plugin in the form of the plugin API: each event becomes a call of the shim, in the plugin's thread. Knows
the requests of the data plane and Mosquitto's results.

A native plugin is *raw*: its methods get the data plane's requests, which know more than the arguments of Python
plugins, and may return answers instead of verdicts.
"""

import ctypes
import threading
from time import monotonic

from mosq.auth.native import calls
from mosq.auth.native.host import Host, host
from mosq.auth.plugin import ALLOW, DEFER, DENY, DROP, Message, Plugin, allow_with, go_on
from mosq.config.errors import ConfigError
from mosq.log_types import WARNING
from mosq.reason_codes import NOT_AUTHORIZED, SUCCESS
from mosq.records import END_SILENTLY, AccessAnswer, LoginAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.auth.pool import Pool
    from mosq.config.plugin import Plugin as Line
    from mosq.records import AccessRequest, ClientNotice, CommandRequest, ExchangeRequest, LoginRequest, MessageRequest

# method of the plugin API -> the event that makes a native plugin have it
EVENT_OF = {"authenticate": calls.BASIC_AUTH, "extended": calls.EXT_AUTH_START, "authorize": calls.ACL_CHECK,
            "message_in": calls.MESSAGE_IN, "message_out": calls.MESSAGE_OUT}
ALWAYS = ("connected", "disconnected", "reload", "close")
# reasons of the data plane (END_) and Mosquitto's numbers for them
ENDS = {0x100: 0, 0x101: 0, 0x102: 7, 0x81: 21, 0x82: 2, 0x8D: 19}
REFUSALS = frozenset((128, 131, 133, 134, 136, 137, 138, 140, 159))     # of BASIC_AUTH, which CONNACK repeats
DELAYED = "delayed"                     # returned by `authenticate`: the plugin completes the login later
IGNORED = "ignored"                     # by `authenticate` and `authorize`: the plugin counts as none
TICK_S = 1.0
LOOKS_WITHIN_S = 3.0                    # two looks that are further apart are not about one call


class LoadError(ConfigError):
    """A native plugin cannot be loaded or initialized; the log says why."""

    def __init__(self, text: str, origin: "Any", status: int) -> None:
        super().__init__(text, origin)
        self.exit_status = status       # of the broker, as Mosquitto's


class NativePlugin(Plugin):
    """One loaded library."""

    raw = True

    def __init__(self, line: "Line", pool: "Pool", wait: "Callable[[threading.Event, str], None]") -> None:
        """Load the library in the plugin's own thread; `wait` waits for that. Raises LoadError."""
        self.path, self.on_loop = line.path, line.on_loop
        self.shown = line.name or line.path.rpartition("/")[2]
        self._host: Host = host()
        self._shim = self._host.shim
        self._pool = pool
        self._plugin: int | None = None
        self._status = ctypes.c_int(0)
        self._closed = threading.Event()
        self.ended = False              # it has cleaned up
        self._ticker: threading.Thread | None = None
        self._next_tick_s = 0.0
        self._free_at = self._looked_at = monotonic()       # when the plugin was seen in no call, and the last look
        self._load(line, wait)
        self._note_events()
        self.describe(line)

    def _load(self, line: "Line", wait: "Callable[[threading.Event, str], None]") -> None:
        done = threading.Event()
        array, n = calls.options_array(line.options)

        def load() -> None:
            try:
                self._plugin = self._shim.mosq_shim_load(
                    line.path.encode(), self.shown.encode(), array, n, int(line.deny_special_chars),
                    ctypes.byref(self._status))
            finally:
                done.set()

        if not self._pool.put(load):
            raise LoadError(f"Unable to load plugin '{line.path}': no thread for it.", line.origin, 1)
        self._wait(lambda: wait(done, self.shown), "initialization")
        if not self._plugin:
            raise LoadError(f"Unable to load plugin '{line.path}': its library cannot be loaded, or its initialization "
                            f"returned {self._status.value}; the log has the reason.", line.origin,
                            self._status.value & 255 or 13)

    def _wait(self, wait: "Callable[[], object]", event: str) -> None:
        """Wait for the plugin's thread. If the broker stops first, log for which plugin it has waited."""
        try:
            wait()
        except BaseException:
            self.warn(f"Warning: Plugin {self.shown} has not ended its {event}; the broker does not wait for it.")
            raise
        finally:
            self._host.take()

    def _note_events(self) -> None:
        events = self._shim.mosq_shim_events(self._plugin)
        self.events = frozenset(i for i in range(32) if events >> i & 1)
        does = [method for method, event in EVENT_OF.items() if event in self.events]
        if calls.SUBSCRIBE in self.events or calls.UNSUBSCRIBE in self.events:
            does.append("subscribing")
        self.offers = frozenset(does)               # also if the loop calls it
        self.methods = frozenset(("reload", "close")) if self.on_loop else frozenset((*does, *ALWAYS))
        self.topics_in: tuple[str, ...] = ("#",) if calls.MESSAGE_IN in self.events else ()
        self.topics_out: tuple[str, ...] = ("#",) if calls.MESSAGE_OUT in self.events else ()

    def describe(self, line: "Line") -> None:
        """Note in a line of the configuration what the plugin is called and which control topics it has."""
        line.shown, line.control_topics = self.name, self.control_topics

    def deny_special_chars(self, denied: bool) -> None:
        """Set whether a plugin of interface version 2 to 4 is not asked about names with +, # or /."""
        self._shim.mosq_shim_deny_special(self._plugin, denied)

    @property
    def knows_keys(self) -> bool:
        """True if the plugin is asked for pre-shared keys."""
        return calls.PSK_KEY in self.events

    @property
    def name(self) -> str | None:
        """The name that the plugin has given itself."""
        name = self._shim.mosq_shim_name(self._plugin)
        return None if name is None else name.decode("utf-8", "replace")

    @property
    def control_topics(self) -> list[str]:
        """The control topics that the plugin has registered."""
        room = self._shim.mosq_shim_topics(self._plugin, None, 0)
        buffer = ctypes.create_string_buffer(room + 1)
        self._shim.mosq_shim_topics(self._plugin, buffer, room)
        return buffer.raw[:room].decode("utf-8", "replace").splitlines()

    @property
    def address(self) -> int:
        """The address of the plugin in the shim."""
        return self._plugin or 0

    def held_for(self, now: float) -> float:
        """Return for how many seconds the plugin has been in a call at each look, if the loop may wait for it."""
        busy = self.on_loop and self._shim.mosq_shim_busy(self._plugin)
        if not busy or now > self._looked_at + LOOKS_WITHIN_S:
            self._free_at = now
        self._looked_at = now
        return now - self._free_at

    # ------------------------------------------------------------ calls

    def _call(self, event: int, call: calls.Call) -> int:
        result = int(self._shim.mosq_shim_call(self._plugin, event, ctypes.byref(call)))
        if call.actions:
            self._host.take()           # before the answer
        return result

    @staticmethod
    def _about(request: "Any", client_id: str, username: str | None, address: str | None = None) -> calls.Call:
        call = calls.Call()
        if getattr(request, "facts", None) is not None:
            ctypes.memmove(ctypes.byref(call, calls.Call.facts.offset), request.facts, calls.FACTS_BYTES)
        call.client_id = client_id.encode()
        call.username = None if username is None else username.encode()
        call.address = None if address is None else address.encode()
        return call

    def _clear(self, call: calls.Call) -> None:
        self._shim.mosq_shim_call_clear(ctypes.byref(call))

    def authenticate(self, request: "LoginRequest") -> "Any":       # type: ignore[override]
        """Ask about a login: LoginAnswer, a verdict, DELAYED or IGNORED."""
        call = self._about(request, request.client_id, request.username, request.address)
        if request.password is not None:
            call.data, call.data_n = request.password, len(request.password)
        call.certificate = self._certificate(request.identity)
        result = self._call(calls.BASIC_AUTH, call)
        try:
            if result == SUCCESS:
                return self._allowed(request.handle, call, None)
        finally:
            self._clear(call)
        if result == calls.PLUGIN_DEFER:
            return DEFER
        if result == calls.PLUGIN_IGNORE:
            return IGNORED
        if result == calls.AUTH_DELAYED:
            return DELAYED
        return LoginAnswer(request.handle, refusal_code(result))

    @staticmethod
    def _certificate(identity: "dict[str, Any] | None") -> bytes | None:
        pem = None if identity is None else identity.get("certificate_pem")
        return None if pem is None else pem.encode()

    @staticmethod
    def _allowed(handle: int, call: calls.Call, data: bytes | None) -> LoginAnswer:
        username = None
        if call.user_set:
            username = "" if call.new_username is None else call.new_username.decode("utf-8", "replace")
        client_id = None if call.new_client_id is None else call.new_client_id.decode("utf-8", "replace")
        return LoginAnswer(handle, SUCCESS, username, data, client_id)

    def extended(self, asked: "tuple[LoginRequest | ExchangeRequest, Any]") -> "Any":       # type: ignore[override]
        """Ask about a step of an exchange of AUTH packets."""
        request, step = asked
        call = self._about(request, step.client_id, step.username, step.address or None)
        call.method = step.method.encode()
        if step.data is not None:
            call.data, call.data_n = step.data, len(step.data)
        call.certificate = self._certificate(getattr(request, "identity", None))
        result = self._call(calls.EXT_AUTH_START if step.first else calls.EXT_AUTH_CONTINUE, call)
        try:
            data = call.given_data()
            if result == SUCCESS:
                if call.user_set or call.new_client_id:
                    return self._allowed(request.handle, call, data or None)
                return allow_with(data) if data else ALLOW
            if result == calls.AUTH_CONTINUE:
                return go_on(data)
        finally:
            self._clear(call)
        if result in (calls.PLUGIN_DEFER, calls.PLUGIN_IGNORE, calls.NOT_SUPPORTED):
            return DEFER
        return DENY if result in (calls.AUTH, calls.ACL_DENIED) else LoginAnswer(request.handle, END_SILENTLY)

    def authorize(self, request: "AccessRequest") -> "Any":     # type: ignore[override]
        """Ask about access to a topic: a verdict, or IGNORED."""
        call = self._about(request, request.client_id, request.username, request.address or None)
        self._put_topic(call, request)
        result = self._call(calls.ACL_CHECK, call)
        if result == calls.PLUGIN_IGNORE:
            return IGNORED
        return ALLOW if result == SUCCESS else DEFER if result == calls.PLUGIN_DEFER else DENY

    @staticmethod
    def _put_topic(call: calls.Call, request: "AccessRequest") -> None:
        call.topic = request.topic.encode()
        call.access, call.retain = request.access, request.retain
        call.qos = request.qos & 3
        if request.payload:
            call.data, call.data_n = request.payload, len(request.payload)
        if request.properties:
            call.properties, call.properties_n = request.properties, len(request.properties)

    def subscribing(self, asked: "tuple[AccessRequest, str, int]") -> "AccessAnswer | tuple[str, int]":
        """Ask what becomes of a filter that may be subscribed to, or unsubscribed from. Returns (filter, options)."""
        request, filter, options = asked
        event = calls.SUBSCRIBE if request.access == 4 else calls.UNSUBSCRIBE
        if event not in self.events:
            return filter, options
        call = self._about(request, request.client_id, request.username, request.address or None)
        call.topic, call.qos = filter.encode(), options
        result = self._call(event, call)
        try:
            if result != SUCCESS:
                return AccessAnswer(request.handle, False)
            return call.new_topic.decode() if call.new_topic is not None else filter, call.new_qos
        except UnicodeDecodeError:          # another filter than the plugin meant must not count
            return AccessAnswer(request.handle, False)
        finally:
            self._clear(call)

    def message_in(self, asked: "tuple[MessageRequest, Message]") -> "Any":     # type: ignore[override]
        """Ask what becomes of a message of a client."""
        return self._message(calls.MESSAGE_IN, asked)

    def message_out(self, asked: "tuple[MessageRequest, Message]") -> "Any":    # type: ignore[override]
        """Ask what becomes of a message for a client."""
        return self._message(calls.MESSAGE_OUT, asked)

    def _message(self, event: int, asked: "tuple[MessageRequest, Message]") -> "Any":
        request, message = asked
        call = self._about(request, request.client_id, request.username)
        call.topic = message.topic.encode()
        call.data, call.data_n = message.payload, len(message.payload)
        call.properties, call.properties_n = message.properties, len(message.properties)
        call.qos, call.retain = message.qos, message.retain
        result = self._call(event, call)
        try:
            if result != SUCCESS:
                return DROP
            changed: dict[str, Any] = {"retain": bool(call.new_retain)}
            if event == calls.MESSAGE_OUT:
                changed["qos"] = call.new_qos
            if call.new_topic is not None:
                changed["topic"] = call.new_topic.decode("utf-8", "replace")
            if call.changed & 2:
                changed["payload"] = call.given_data()
            if call.properties_changed:
                changed["properties"] = call.given_properties()
            return message._replace(**changed)
        finally:
            self._clear(call)

    def connected(self, notice: "ClientNotice") -> None:        # type: ignore[override]
        """Report a client that has connected."""
        call = self._about(notice, notice.client_id, notice.username, notice.detail)
        if calls.CONNECT in self.events:
            self._call(calls.CONNECT, call)
        else:
            self._shim.mosq_shim_client_known(ctypes.byref(call))

    def disconnected(self, notice: "ClientNotice") -> None:     # type: ignore[override]
        """Report a client that has disconnected, with CLIENT_OFFLINE if its session stays, as in Mosquitto."""
        event = calls.CLIENT_OFFLINE if notice.offline else calls.DISCONNECT
        call = self._about(notice, notice.client_id, notice.username)
        if event in self.events:
            call.reason = 14 if notice.code >= 0x1000 else ENDS.get(notice.code, notice.code)
            self._call(event, call)
        else:
            self.forget(call.facts.connection)

    def knows(self, connection: int) -> bool:
        """Return whether the shim has a client with this connection."""
        return bool(self._shim.mosq_shim_client_is_known(connection))

    def forget(self, connection: int) -> None:
        """Note that a client is gone, without an event."""
        if connection:
            self._shim.mosq_shim_client_gone(connection)

    def control(self, asked: "CommandRequest | Any", topic: str, payload: bytes) -> None:
        """Pass a message on a control topic of the plugin."""
        call = self._about(asked, asked.client_id, asked.username, asked.address)
        call.facts.connection = asked.handle
        call.topic, call.data, call.data_n = topic.encode(), payload, len(payload)
        self._call(calls.CONTROL, call)
        self._clear(call)

    def reload(self, options: dict[str, str]) -> None:
        """Pass the event of a reload, with the new options."""
        call = calls.Call()
        array, n = calls.options_array(options)
        call.has_options, call.n_options = 1, n
        call.options = ctypes.cast(array, ctypes.POINTER(calls.Option))
        self._call(calls.RELOAD, call)

    # ------------------------------------------------------------ the broker's state

    @property
    def persists(self) -> bool:
        """True if the plugin keeps the broker's state."""
        return not calls.PERSIST.isdisjoint(self.events)

    def restore(self, take: "Callable[[int, calls.Stored], int]") -> int:
        """Let the plugin restore what it has kept: `take` gets each part, and returns the plugin's result of it. Waits
        for the plugin's thread; return the result of the event."""
        done, results = threading.Event(), list[int]()

        def taken(event: int, stored: "Any") -> int:
            try:
                return take(event, stored.contents)
            except Exception as error:
                self.warn(f"Warning: Plugin {self.shown} restores what cannot be taken: {type(error).__name__}.")
                return calls.INVAL

        taker = calls.TAKER(taken)

        def work() -> None:
            try:
                results.append(int(self._shim.mosq_shim_restore(self._plugin, taker)))
            finally:
                done.set()

        if calls.RESTORE in self.events and self._pool.put(work):
            self._wait(done.wait, "persist-restore")
        return results[0] if results else SUCCESS

    def report_stored(self, events: "list[tuple[int, dict[str, Any]]]") -> dict[int, int]:
        """Report changes of the broker's state; runs in the plugin's thread. Return the last results that are not 0,
        by event."""
        failed = {}
        for event, fields in events:
            if event in self.events:
                result = self._shim.mosq_shim_persist(self._plugin, event, ctypes.byref(calls.stored_of(fields)))
                if result != SUCCESS:
                    failed[event] = int(result)
        self._host.take()
        return failed

    # ------------------------------------------------------------ ticks

    def begin(self, sink: "Any") -> None:
        """Start the plugin's ticks, once its configuration is in force."""
        self.listen(sink)
        if calls.TICK in self.events and self._ticker is None:
            self._ticker = threading.Thread(target=self._tick_on, name=f"mosq-tick-{self.shown}"[:40], daemon=True)
            self._ticker.start()

    def listen(self, sink: "Any") -> None:
        """Send the plugins' requests to `sink` from now on."""
        self._host.sink = sink

    def _tick_on(self) -> None:
        done = threading.Event()

        def tick() -> None:
            call = calls.Call()
            try:
                self._call(calls.TICK, call)
            finally:
                self._next_tick_s = monotonic() + (call.next_ms / 1000 if call.next_ms > 0 else TICK_S)
                done.set()

        while not self._closed.is_set():
            done.clear()
            self._next_tick_s = monotonic() + TICK_S
            if self._pool.put(tick, done.set):
                done.wait()
            self._closed.wait(max(0.001, self._next_tick_s - monotonic()))

    def close(self) -> None:
        """Let the plugin clean up. No thread that it had from the broker runs any more, apart from the calling one."""
        self._closed.set()
        if self._ticker is not None:
            self._ticker.join()
        self._shim.mosq_shim_end(self._plugin)
        self.ended = True
        self._host.take()
        self._host.end()

    def warn(self, text: str) -> None:
        """Log a warning."""
        if self._host.sink is not None:
            self._host.sink.log(WARNING, text)


def refusal_code(result: int) -> int:
    """Return the reason code of CONNACK for a result of BASIC_AUTH. Other results than refusals are errors, which end
    the connection without CONNACK, as in Mosquitto."""
    if result in (calls.AUTH, calls.ACL_DENIED):
        return NOT_AUTHORIZED
    return result if result in REFUSALS else END_SILENTLY
