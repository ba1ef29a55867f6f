"""Passes the auth requests of one configuration to its plugins: logins, exchanges, topic access, messages, events.

Plugins are called one after the other in the order of the configuration, global ones first. The first that allows or
denies decides; DEFER leaves the decision to the next. Knows requests and verdicts; not threads (runner.py), nor how
plugins are found (loading.py).
Invariants: a request is answered once, or not at all after its deadline; a plugin's failure refuses only the request;
the number and duration of AUTH exchanges are limited.
"""

import threading
from functools import partial
from time import monotonic

from cachetools import TTLCache

from mosq.auth.loading import make_plugin, option_of
from mosq.auth.networks import network_of
from mosq.auth.plugin import (
    ALLOW,
    DROP,
    SUBSCRIBE,
    AclRequest,
    AuthStep,
    ClientEvent,
    ConnectRequest,
    Message,
    Verdict,
)
from mosq.auth.pool import Pool
from mosq.auth.runner import WAITING_MAX, Login, PluginBroker, PluginFailedError, Runner, connection_of
from mosq.auth.turns import Turns, bytes_of
from mosq.config.errors import ConfigError
from mosq.config.plugin import ACL_FILE, DYNAMIC_SECURITY, NATIVE, PASSWORD_FILE, PERSIST_SQLITE, SPARKPLUG_AWARE
from mosq.log_types import INFORMATION, NOTICE, WARNING
from mosq.reason_codes import (
    BAD_AUTHENTICATION_METHOD,
    CONNECTION_RATE_EXCEEDED,
    CONTINUE_AUTHENTICATION,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SUCCESS,
)
from mosq.records import (
    AccessAnswer,
    AccessRequest,
    ClientNotice,
    Content,
    ExchangeRequest,
    LoginAnswer,
    LoginRequest,
    LoginWait,
    MessageAnswer,
    MessageRequest,
    PublishCommand,
    refused,
    unasked,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mosq.auth.dynsec.directory import Directory
    from mosq.config.plugin import Plugin as Line
    from mosq.records import Answer
    from mosq.records import AuthRequest as Request
    from mosq.server.access import Access, Realm

    Make = Callable[[str, Any], Any]

EXCHANGES_MAX, EXCHANGE_S = 10_000, 120.0
FAILED_END_S = 2.0                          # for the thread of a native plugin that was not loaded
DELAYED_MAX, DELAYED_S = 10_000, 60        # logins that native plugins complete later
STRING_BYTES_MAX = 65535
# Mosquitto's names of the events that its plugins receive, and of those that methods of Python plugins are
EVENTS_OF_BUILT_IN = {ACL_FILE: ("acl-check", "reload"), PASSWORD_FILE: ("basic-auth", "reload"),
                      DYNAMIC_SECURITY: ("basic-auth", "acl-check", "tick")}
EVENT_OF_METHOD = {"authenticate": "basic-auth", "extended": "auth-start", "authorize": "acl-check",
                   "message_in": "message-in", "message_out": "message-out", "connected": "connect",
                   "disconnected": "disconnect", "subscribed": "subscribe", "unsubscribed": "unsubscribe",
                   "tick": "tick", "reload": "reload"}
LOGIN_METHODS = ("authenticate", "extended")
SPECIAL = frozenset("+#/")
LOG_SPECIAL_EVERY_S = 10.0


class Plugins:
    """The plugins of one Access."""

    def __init__(self, send: "Callable[[Answer], None]", flush: "Callable[[], None]",
                 report: "Callable[[int, str], None]", earlier: "Plugins | None",
                 native: "Callable[[Line, Pool], Any] | None" = None,
                 pause: "Callable[[Callable[[], None]], None] | None" = None) -> None:
        """`native` loads a native plugin in the thread of a pool. `pause` calls work that a stop of the broker must not
        interrupt: a native plugin that is initialized and has no runner would never clean up."""
        self._send, self._flush, self._report = send, flush, report
        self._native, self._pause = native, pause
        # connection -> the delayed login of a native plugin: access, request, deciders, its place among them
        self._delayed: TTLCache[int, tuple[Any, ...]] = (
            earlier._delayed if earlier else TTLCache(DELAYED_MAX, DELAYED_S + 5))
        self._begun = self._released = False
        self._listener: Any = None              # a native plugin
        self._exchanges_lock: threading.Lock
        self._runners: dict[object, Runner] = {}                # identity of a plugin line -> its runner
        self._is_reload, self._logged = earlier is not None, set[int]()
        self._kept = list(earlier._runners.values()) if earlier else []
        self._to_reload: list[tuple[Runner, Line]] = []
        # handle of an auth request -> the runner that answered its last step, and that step
        self._exchanges: TTLCache[int, tuple[Runner, AuthStep]] = (
            earlier._exchanges if earlier else TTLCache(EXCHANGES_MAX, EXCHANGE_S))
        self._exchanges_lock = earlier._exchanges_lock if earlier else threading.Lock()
        self._logged_special_at = -LOG_SPECIAL_EVERY_S

    # ------------------------------------------------------------ construction

    def add(self, realm: "Realm", lines: "list[Line]", users: "Make", acl: "Make",
            directory: "Callable[[Line], Directory]") -> None:
        """Add the plugins of these lines to a realm. Raises ConfigError."""
        for line in lines:
            self._log_built_in(line)
            if line.kind == PASSWORD_FILE:
                realm.deciders.append(users(option_of(line, "password_file"), line.origin))
            elif line.kind == ACL_FILE:
                rules = acl(option_of(line, "acl_file"), line.origin)
                realm.acl = rules if realm.acl is None else realm.acl   # the first acl_file decides
            elif line.kind == DYNAMIC_SECURITY:
                made = directory(line)          # the same one for each line
                if realm.directory is None:
                    realm.deciders.append(made)
                realm.directory = made
            elif line.kind != PERSIST_SQLITE:       # mosq/server/storage.py handles that plugin
                self._place(realm, self._runner(line))

    def _log_built_in(self, line: "Line") -> None:
        """Log a built-in plugin once, as Mosquitto does when it loads the plugin; a reload loads none again."""
        name = line.kind
        if name not in EVENTS_OF_BUILT_IN or self._is_reload or id(line) in self._logged:
            return
        self._logged.add(id(line))
        self._report(INFORMATION, f"Loading plugin: {line.path}")
        if name == DYNAMIC_SECURITY:
            self._report(INFORMATION, f"Plugin {name} has registered to receive 'control' events on topic "
                                      "$CONTROL/dynamic-security/v1.")
        self._log_loaded(name, EVENTS_OF_BUILT_IN[name])

    def _log_loaded(self, name: str, events: "Iterable[str]") -> None:
        for event in events:
            self._report(INFORMATION, f"Plugin {name} has registered to receive '{event}' events.")
        self._report(INFORMATION, f"Plugin {name} loaded.")

    def _place(self, realm: "Realm", runner: Runner) -> None:
        realm.plugins.append(runner)
        if runner.raw and runner.plugin.on_loop:        # type: ignore[attr-defined]
            realm.loop.append(runner.plugin)
        if "authenticate" in runner.does:
            realm.deciders.append(runner)
        if "authorize" in runner.does:
            realm.authorizers.append(runner)

    def _runner(self, line: "Line") -> Runner:
        identity = (line.path, line.name) if line.name else id(line)
        if identity not in self._runners:
            if line.kind == NATIVE and self._pause is not None:
                self._pause(partial(self._make_runner, identity, line))
            else:
                self._make_runner(identity, line)
        return self._runners[identity]

    def _make_runner(self, identity: object, line: "Line") -> None:
        options = dict(line.options)
        runner = self._earlier(line, options) or self._new(line, options)
        runner.holders += 1
        self._runners[identity] = runner

    def _earlier(self, line: "Line", options: dict[str, str]) -> Runner | None:
        """Return an instance that continues over a reload, or None. A native plugin always continues, in its thread: a
        second instance would share the library's variables."""
        for i, runner in enumerate(self._kept):
            if runner.path == line.path and (runner.raw or (
                    runner.deny_special_chars == line.deny_special_chars
                    and (runner.options == options or "reload" in runner.does))):
                self._to_reload.append((runner, line))
                if runner.raw:
                    runner.plugin.describe(line)    # type: ignore[attr-defined]
                return self._kept.pop(i)
        return None

    def _new(self, line: "Line", options: dict[str, str]) -> Runner:
        if line.kind == NATIVE:
            return self._new_native(line, options)
        self._report(INFORMATION, f"Loading plugin: {line.path}")
        instance = make_plugin(line)
        name = line.name or line.path.rpartition("/")[2].removeprefix("python:")
        instance.broker = PluginBroker(name, self._publish, partial(self._report, INFORMATION))
        runner = Runner(name, line.path, instance, options, line.deny_special_chars, self._flush,
                        partial(self._report, WARNING))
        shown = line.kind if line.kind == SPARKPLUG_AWARE else name
        self._log_loaded(shown, [event for method, event in EVENT_OF_METHOD.items() if method in runner.does])
        return runner

    def _new_native(self, line: "Line", options: dict[str, str]) -> Runner:
        """Load a native plugin in the thread that all of its calls will have. It logs its own lines. Raises
        ConfigError."""
        if self._native is None:
            raise ConfigError(f"Native plugins cannot be used here: '{line.path}'.", line.origin)
        name = line.name or line.path.rpartition("/")[2]
        made: list[Runner] = []
        pool = Pool(f"plugin-{name}"[:40], 1, WAITING_MAX, self._flush,
                    lambda error: made[0].failed("a call", error) if made else None)
        try:
            instance = self._native(line, pool)
        except ConfigError:
            pool.close(FAILED_END_S)
            raise
        except BaseException:           # the broker stops while the plugin is initialized
            pool.close(0)
            raise
        made.append(Runner(name, line.path, instance, options, line.deny_special_chars, self._flush,
                           partial(self._report, WARNING), pool))
        return made[0]

    def natives(self) -> "list[Any]":
        """Return the native plugins."""
        return [runner.plugin for runner in self._runners.values() if runner.raw]

    def persisting(self) -> list[Runner]:
        """Return the native plugins that keep the broker's state."""
        return [runner for runner in self._runners.values()
                if runner.raw and runner.plugin.persists]       # type: ignore[attr-defined]

    def runner_of(self, plugin: "Any") -> Runner:
        """Return the runner of a native plugin."""
        return next(runner for runner in self._runners.values() if runner.plugin is plugin)

    def forget(self, notice: ClientNotice) -> None:
        """Note the end of a client whose plugins are gone."""
        for plugin in self.natives()[:1]:       # all plugins share the clients
            plugin.forget(connection_of(notice))

    def _publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self._send(PublishCommand(topic, payload, qos, retain))
        self._flush()

    def release(self, within_s: float) -> None:
        """Release the plugins. A plugin without another holder ends within `within_s` seconds; 0: no wait."""
        self._released = True               # requests that wait are asked again under the configuration in force
        for runner in self._runners.values():
            runner.holders -= 1
            if not runner.holders:
                runner.close(within_s)
        self._runners = {}

    def tick(self, now: float, timeout_s: float) -> None:
        """Call the plugins' `tick` and check for stuck calls."""
        for runner in self._runners.values():
            runner.tick(now, timeout_s)

    def login_queues(self) -> list[Turns]:
        """Return the queues of the plugins that decide about logins."""
        return [runner.logins for runner in self._runners.values() if not runner.does.isdisjoint(LOGIN_METHODS)]

    def begin(self, access: "Access | None" = None) -> None:
        """Notify the plugins that continued over a reload, now that this configuration is in force. Native plugins send
        their requests to `access`."""
        if not self._begun:
            self._begun = True
            for plugin in self.natives():
                self._listener = plugin
                plugin.begin(access)
        elif self._listener is not None and access is not None:
            self._listener.listen(access)       # a reload that failed has taken the requests
        if self._to_reload:
            for runner, line in self._to_reload:
                if runner.raw:
                    runner.plugin.deny_special_chars(line.deny_special_chars)       # type: ignore[attr-defined]
                runner.reload(dict(line.options))
            self._to_reload = []

    # ------------------------------------------------------------ requests

    def take(self, access: "Access", request: "Request", realm: "Realm", deadline: float) -> None:
        """Handle an auth request other than a plain login."""
        if isinstance(request, LoginRequest):
            self._extend(access, request, [r for r in realm.plugins if "extended" in r.does], deadline)
        elif isinstance(request, ExchangeRequest):
            self._go_on(access, request, realm, deadline)
        elif isinstance(request, AccessRequest):
            self._authorize(access, request, realm.authorizers, 0, deadline)
        elif isinstance(request, ClientNotice):
            event = ClientEvent(request.client_id, request.username, request.detail)
            for runner in realm.plugins:
                runner.event(request.event, request if runner.raw else event)
        elif isinstance(request, MessageRequest):
            r = request
            message = Message(r.topic, r.payload, r.qos, r.retain, r.properties, r.client_id, r.username)
            self._transform(request, realm.plugins, 0, message, deadline)

    def _put(self, runner: Runner, request: "Request", deadline: float, work: "Callable[[], Answer | None]") -> None:
        refuse = partial(self._refuse, runner, request)
        if not runner.put(partial(self._work, runner, request, deadline, work), refuse):
            refuse()

    def _put_login(self, access: "Access", runner: Runner, request: "LoginRequest | ExchangeRequest", deadline: float,
                   work: "Callable[[], Answer | None]") -> None:
        trusted = access.trusts(request) if isinstance(request, LoginRequest) else request.connected
        login = Login(partial(self._work, runner, request, deadline, work), partial(self._refuse, runner, request),
                      deadline)
        runner.put_login(network_of(request.address), login, bytes_of(request), trusted)

    def _refuse(self, runner: Runner, request: "Request") -> None:
        """Answer a request that finds no room, or that waits while its plugin ends."""
        if self._released:
            self._send(unasked(request))
        else:
            runner.failed(request.kind, "too many requests wait")
            self._send(refused(request, SERVER_BUSY))

    def _work(self, runner: Runner, request: "Request", deadline: float, work: "Callable[[], Answer | None]") -> None:
        """Answer a request in a thread of the plugin. `work` returns the answer, or None if the next plugin gives
        it."""
        if self._released:
            self._send(unasked(request))
            return
        if monotonic() > deadline:
            runner.failed(request.kind, "requests waited longer than auth_timeout")
            return
        try:
            answer = work()
        except PluginFailedError:
            answer = refused(request, NOT_AUTHORIZED)
        if answer is not None:
            self._send(named(answer, runner))

    # ------------------------------------------------------------ logins

    def authenticate(self, access: "Access", request: LoginRequest, deciders: "list[Any]", place: int, deadline: float
                     ) -> None:
        """Ask the plugin at `place` in `deciders` about a login."""
        runner = deciders[place]
        if access.refuses(request):
            self._send(LoginAnswer(request.handle, CONNECTION_RATE_EXCEEDED))
            return
        self._put_login(access, runner, request, deadline, partial(
            self._call_authenticate, access, runner, request, deciders, place, deadline))

    def _call_authenticate(self, access: "Access", runner: Runner, request: LoginRequest, deciders: "list[Any]",
                           place: int, deadline: float) -> "Answer | None":
        r = request
        if runner.raw:
            return self._call_native_login(access, runner, request, deciders, place, deadline)
        verdict = checked_verdict(runner, "authenticate", runner.call("authenticate", ConnectRequest(
            r.client_id, r.username, r.password, r.address, r.port, r.version, r.identity)))
        if verdict.decision == "defer":
            access.decide(request, deciders, place + 1, deadline)
            return None
        if verdict.decision == "continue":
            runner.failed("authenticate", "it continues an exchange that has not begun")
            raise PluginFailedError
        good = verdict.decision == "allow"
        if r.username is not None:
            access.note(r.address, r.username, good)
        return login_answer(request.handle, verdict) if good else LoginAnswer(request.handle, NOT_AUTHORIZED)

    def _call_native_login(self, access: "Access", runner: Runner, request: LoginRequest, deciders: "list[Any]",
                           place: int, deadline: float) -> "Answer | None":
        connection = connection_of(request)
        with self._exchanges_lock:
            self._delayed[connection] = (access, request, deciders, place)      # first: another thread may complete it
        result = runner.call("authenticate", request)
        with self._exchanges_lock:
            if result == "delayed":
                return LoginWait(request.handle, DELAYED_S) if connection in self._delayed else None
            self._delayed.pop(connection, None)
        if isinstance(result, LoginAnswer):
            if request.username is not None:
                access.note(request.address, request.username, result.code == SUCCESS)
            return result
        if result == "ignored":
            access.decide(request, without(deciders, place), place, deadline)
        else:
            access.decide(request, deciders, place + 1, deadline)
        return None

    def complete(self, connection: int, code: int | None) -> None:
        """Answer a delayed login. `code`: reason code; None: the next plugin decides."""
        with self._exchanges_lock:
            delayed = self._delayed.pop(connection, None)
        if delayed is None:
            return
        access, request, deciders, place = delayed
        if code is None:
            access.decide(request, deciders, place + 1, monotonic() + DELAYED_S)
        else:
            if request.username is not None:
                access.note(request.address, request.username, code == SUCCESS)
            self._send(named(LoginAnswer(request.handle, code), deciders[place]))
        self._flush()

    # ------------------------------------------------------------ exchanges [v5 4.12]

    def _extend(self, access: "Access", request: "LoginRequest | ExchangeRequest", runners: list[Runner],
                deadline: float) -> None:
        """Begin an exchange of AUTH packets."""
        if not runners:
            self._send(LoginAnswer(request.handle, BAD_AUTHENTICATION_METHOD))
            return
        r = request
        again = isinstance(r, ExchangeRequest) and r.connected
        step = AuthStep(r.method or "", r.data, True, again, r.client_id or "", r.username, r.address, {})
        self._put_login(access, runners[0], request, deadline,
                        partial(self._step, access, runners, request, step, deadline))

    def _go_on(self, access: "Access", request: ExchangeRequest, realm: "Realm", deadline: float) -> None:
        """Handle a further step, or the first step of a re-authentication."""
        with self._exchanges_lock:
            known = self._exchanges.get(request.handle)
        if known is None:
            self._extend(access, request, [r for r in realm.plugins if "extended" in r.does], deadline)
            return
        runner, step = known
        step = step._replace(data=request.data, first=False)
        self._put_login(access, runner, request, deadline,
                        partial(self._step, access, [runner], request, step, deadline))

    def _step(self, access: "Access", runners: list[Runner], request: "LoginRequest | ExchangeRequest", step: AuthStep,
              deadline: float) -> "Answer | None":
        runner, handle = runners[0], request.handle
        try:
            given = runner.call("extended", (request, step) if runner.raw else step)
            if isinstance(given, LoginAnswer):
                self._forget(handle)
                return given
            verdict = checked_verdict(runner, "extended", given)
        except PluginFailedError:
            self._forget(handle)
            raise
        if verdict.decision == "defer" and step.first:
            if len(runners) == 1:
                return LoginAnswer(handle, BAD_AUTHENTICATION_METHOD)
            self._put_login(access, runners[1], request, deadline,
                            partial(self._step, access, runners[1:], request, step, deadline))
            return None
        if verdict.decision == "continue":
            with self._exchanges_lock:
                self._exchanges[handle] = runner, step
            return LoginAnswer(handle, CONTINUE_AUTHENTICATION, data=verdict.data or b"")
        self._forget(handle)
        good = verdict.decision == "allow"
        return login_answer(request.handle, verdict) if good else LoginAnswer(request.handle, NOT_AUTHORIZED)

    def _forget(self, handle: int) -> None:
        with self._exchanges_lock:
            self._exchanges.pop(handle, None)

    # ------------------------------------------------------------ access to topics

    def _authorize(self, access: "Access", request: AccessRequest, runners: list[Runner], place: int, deadline: float
                   ) -> None:
        if place == len(runners):
            # The acl_file decides; without one, access is denied, if there was a plugin to ask.
            realm = access.realms[request.security]
            asked = runners or realm.loop_offers("authorize")
            allowed = None if asked or realm.acl is not None or realm.directory is not None else True
            self._subscribing(access, request, allowed, 0, (request.topic, request.qos), deadline)
            return
        if not runners[place].raw and runners[place].deny_special_chars and not self._is_plain(request):
            self._send(AccessAnswer(request.handle, False))
            return
        self._put(runners[place], request, deadline,
                  partial(self._call_authorize, access, request, runners, place, deadline))

    def _is_plain(self, request: AccessRequest) -> bool:
        """Return whether neither user name nor client id could act as a part of a filter in a plugin's rules."""
        for what, name in (("username", request.username or ""), ("client id", request.client_id)):
            if not SPECIAL.isdisjoint(name):
                now = monotonic()
                if now - self._logged_special_at >= LOG_SPECIAL_EVERY_S:
                    self._logged_special_at = now
                    self._report(NOTICE, f'ACL denying access to client with dangerous {what} "{name}"')
                return False
        return True

    def _call_authorize(self, access: "Access", request: AccessRequest, runners: list[Runner], place: int,
                        deadline: float) -> "Answer | None":
        runner = runners[place]
        r = request
        given = runner.call("authorize", request if runner.raw else AclRequest(
            r.client_id, r.username, r.address, r.access, r.topic, r.qos & 3, r.retain, r.payload))
        if runner.raw and given == "ignored":
            self._authorize(access, request, without(runners, place), place, deadline)
            return None
        verdict = checked_verdict(runner, "authorize", given)
        if verdict.decision == "defer":
            self._authorize(access, request, runners, place + 1, deadline)
            return None
        if verdict == ALLOW and request.access >= SUBSCRIBE:
            self._subscribing(access, request, True, 0, (request.topic, request.qos), deadline)
            return None
        return AccessAnswer(request.handle, verdict.decision == "allow")

    def _subscribing(self, access: "Access", request: AccessRequest, allowed: bool | None,      # parameters: a step
                     place: int, filter: tuple[str, int], deadline: float) -> None:
        """Ask the native plugins from this place on what becomes of a filter, and answer."""
        runners = access.realms[request.security].plugins if request.access >= SUBSCRIBE else []
        while place < len(runners) and not runners[place].decides_filters:
            place += 1
        if place < len(runners):
            self._put(runners[place], request, deadline,
                      partial(self._call_subscribing, access, request, allowed, place, filter, deadline))
        elif filter == (request.topic, request.qos):
            self._send(AccessAnswer(request.handle, allowed))
        else:
            self._send(AccessAnswer(request.handle, allowed, *filter))

    def _call_subscribing(self, access: "Access", request: AccessRequest, allowed: bool | None,  # parameters: a step
                          place: int, filter: tuple[str, int], deadline: float) -> "Answer | None":
        runner = access.realms[request.security].plugins[place]
        given = runner.call("subscribing", (request, *filter))
        if isinstance(given, AccessAnswer):
            return given
        self._subscribing(access, request, allowed, place + 1, given, deadline)
        return None

    # ------------------------------------------------------------ messages

    def _transform(self, request: MessageRequest, runners: list[Runner], place: int, message: Message, deadline: float
                   ) -> None:
        while place < len(runners) and not runners[place].wants(request.way, message.topic):
            place += 1
        if place == len(runners):
            content = Content(message.topic, message.payload, message.qos, message.retain,
                              None if message.properties == request.properties else message.properties)
            self._send(MessageAnswer(request.way, request.handle, content))
            return
        self._put(runners[place], request, deadline,
                  partial(self._call_transform, request, runners, place, message, deadline))

    def _call_transform(self, request: MessageRequest, runners: list[Runner], place: int, message: Message,
                        deadline: float) -> "Answer | None":
        runner, kind = runners[place], request.way
        result = runner.call(kind, (request, message) if runner.raw else message)
        if result == DROP:
            return MessageAnswer(kind, request.handle, None)
        if result is None:
            result = message
        if not runner.raw and isinstance(result, Message):
            result = result._replace(properties=message.properties)
        if not is_message(result):
            runner.failed(kind, "it returned no message")
            raise PluginFailedError
        self._transform(request, runners, place + 1, result, deadline)
        return None


def login_answer(handle: int, verdict: Verdict) -> "Answer":
    """Return the answer that accepts a login."""
    return LoginAnswer(handle, SUCCESS, verdict.username, verdict.data)


def named(answer: "Answer", runner: Runner) -> "Answer":
    """Return the answer, which names the plugin if it refuses a login."""
    if isinstance(answer, LoginAnswer) and answer.code not in (SUCCESS, CONTINUE_AUTHENTICATION):
        return answer._replace(plugin=runner.name)
    return answer


def without(runners: "list[Any]", place: int) -> "list[Any]":
    """Return the list without the plugin at this place, which ignores the request and counts as one that does not
    exist."""
    return [*runners[:place], *runners[place + 1:]]


def checked_verdict(runner: Runner, method: str, verdict: "Any") -> Verdict:
    """Check the verdict of a plugin. If it is none, log that and raise PluginFailedError."""
    if isinstance(verdict, Verdict) and (verdict.username is None or is_string(verdict.username)) and (
            verdict.data is None or (isinstance(verdict.data, bytes) and len(verdict.data) <= STRING_BYTES_MAX)):
        return verdict
    runner.failed(method, "it returned no verdict; expected ALLOW, DENY, DEFER, allow_as(...) or the like")
    raise PluginFailedError


def is_string(text: object) -> bool:
    """Return whether `text` is a valid MQTT string [v5 1.5.4]."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        return 0 < len(text.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:
        return False


def is_message(message: object) -> bool:
    """Return whether `message` is a Message that the broker can route."""
    return (isinstance(message, Message) and is_string(message.topic) and "+" not in message.topic
            and "#" not in message.topic and isinstance(message.payload, bytes) and message.qos in (0, 1, 2))
