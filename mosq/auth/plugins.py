"""Passes the auth requests of one configuration to its plugins: logins, exchanges, topic access, messages, events.

Plugins are called one after the other in the order of the configuration, global ones first. The first that allows or
denies decides; DEFER leaves the decision to the next. Knows requests and verdicts; not threads (runner.py), nor how
plugins are found (loading.py). Invariants: a request is answered once, or not at all after its deadline; a plugin's
failure refuses only the request; the number and duration of AUTH exchanges are limited.
"""

import threading
from functools import partial
from time import monotonic

from cachetools import TTLCache

from mosq.auth.loading import make_plugin, option_of
from mosq.auth.plugin import (
    DROP,
    AclRequest,
    AuthStep,
    ClientEvent,
    ConnectRequest,
    Message,
    Verdict,
)
from mosq.auth.runner import Door, PluginFailedError, Runner
from mosq.config.options import LOG_TYPES
from mosq.config.plugin import ACL_FILE, DYNAMIC_SECURITY, PASSWORD_FILE, PERSIST_SQLITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.auth.dynsec.directory import Directory
    from mosq.config.plugin import Plugin as Line
    from mosq.server.access import Access, Answer, Realm, Request

    Make = Callable[[str, Any], Any]

LET_IN, CONTINUE = 0, 0x18
NOT_AUTHORISED, SERVER_BUSY, BAD_METHOD, RATE_EXCEEDED = 0x87, 0x89, 0x8C, 0x9F
NO_OPINION = -1
EXCHANGES_MAX, EXCHANGE_S = 10_000, 120.0
STRING_BYTES_MAX = 65535
SPECIAL = frozenset("+#/")
INFORMATION, WARNING, NOTICE = LOG_TYPES["information"], LOG_TYPES["warning"], LOG_TYPES["notice"]
TELL_SPECIAL_EVERY_S = 10.0


class Plugins:
    """The plugins of one Access."""

    def __init__(self, send: "Callable[[Answer], None]", flush: "Callable[[], None]",
                 say: "Callable[[int, str], None]", earlier: "Plugins | None") -> None:
        self._send, self._flush, self._say = send, flush, say
        self._exchanges_lock: threading.Lock
        self._runners: dict[object, Runner] = {}                # identity of a plugin line -> its runner
        self._kept = list(earlier._runners.values()) if earlier else []
        self._to_reload: list[tuple[Runner, dict[str, str]]] = []
        # handle of an auth request -> the runner that answered its last step, and that step
        self._exchanges: TTLCache[int, tuple[Runner, AuthStep]] = (
            earlier._exchanges if earlier else TTLCache(EXCHANGES_MAX, EXCHANGE_S))
        self._exchanges_lock = earlier._exchanges_lock if earlier else threading.Lock()
        self._told_special_at = -TELL_SPECIAL_EVERY_S

    # ------------------------------------------------------------ construction

    def add(self, realm: "Realm", lines: "list[Line]", users: "Make", acl: "Make",
            directory: "Callable[[Line], Directory]") -> None:
        """Add the plugins of these lines to a realm. Raises ConfigError."""
        for line in lines:
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

    def _place(self, realm: "Realm", runner: Runner) -> None:
        realm.plugins.append(runner)
        if "authenticate" in runner.does:
            realm.deciders.append(runner)
        if "authorize" in runner.does:
            realm.authorizers.append(runner)

    def _runner(self, line: "Line") -> Runner:
        identity = (line.path, line.name) if line.name else id(line)
        if identity not in self._runners:
            options = dict(line.options)
            runner = self._earlier(line, options) or self._new(line, options)
            runner.holders += 1
            self._runners[identity] = runner
        return self._runners[identity]

    def _earlier(self, line: "Line", options: dict[str, str]) -> Runner | None:
        """Return an instance that continues over a reload, or None."""
        for i, runner in enumerate(self._kept):
            if runner.path == line.path and (runner.options == options or "reload" in runner.does):
                if runner.deny_special_chars != line.deny_special_chars:
                    continue
                self._to_reload.append((runner, options))
                return self._kept.pop(i)
        return None

    def _new(self, line: "Line", options: dict[str, str]) -> Runner:
        instance = make_plugin(line)
        name = line.name or line.path.rpartition("/")[2].removeprefix("python:")
        instance.broker = Door(name, self._publish, partial(self._say, INFORMATION))
        return Runner(name, line.path, instance, options, line.deny_special_chars, self._flush,
                      partial(self._say, WARNING))

    def _publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self._send(("publish", topic, payload, qos, retain))
        self._flush()

    def release(self, within_s: float) -> None:
        """Release the plugins. A plugin without another holder ends within `within_s` seconds; 0: no wait."""
        for runner in self._runners.values():
            runner.holders -= 1
            if not runner.holders:
                runner.close(within_s)
        self._runners = {}

    def tick(self, now: float, timeout_s: float) -> None:
        """Call the plugins' `tick` and check for stuck calls."""
        self.begin()
        for runner in self._runners.values():
            runner.tick(now, timeout_s)

    def begin(self) -> None:
        """Notify the plugins that continued over a reload, now that this configuration is in force."""
        if self._to_reload:
            for runner, options in self._to_reload:
                runner.reload(options)
            self._to_reload = []

    # ------------------------------------------------------------ requests

    def take(self, access: "Access", request: "Request", realm: "Realm", deadline: float) -> None:
        """Handle an auth request other than a plain login."""
        kind = request[0]
        if kind == "connect":
            self._extend(access, request, [r for r in realm.plugins if "extended" in r.does], deadline)
        elif kind == "auth":
            self._go_on(access, request, realm, deadline)
        elif kind == "acl":
            self._authorize(access, request, realm.authorizers, 0, deadline)
        elif kind == "event":
            event = ClientEvent(request[4], request[5], request[6])
            for runner in realm.plugins:
                runner.event(request[3], event)
        else:
            _, _, _, client_id, user, topic, payload, qos, retain, properties = request
            message = Message(topic, payload, qos, bool(retain), properties, client_id, user)
            self._transform(request, realm.plugins, 0, message, deadline)

    def _put(self, runner: Runner, request: "Request", deadline: float, work: "Callable[[], Answer | None]") -> None:
        if not runner.put(partial(self._work, runner, request, deadline, work)):
            runner.failed(request[0], "too many requests wait")
            self._send(refused(request, SERVER_BUSY))

    def _work(self, runner: Runner, request: "Request", deadline: float, work: "Callable[[], Answer | None]") -> None:
        """Answer a request in a thread of the plugin. `work` returns the answer, or None if the next plugin gives
        it."""
        if monotonic() > deadline:
            runner.failed(request[0], "requests waited longer than auth_timeout")
            return
        try:
            answer = work()
        except PluginFailedError:
            answer = refused(request, NOT_AUTHORISED)
        if answer is not None:
            self._send(answer)

    # ------------------------------------------------------------ logins

    def authenticate(self, access: "Access", request: "Request", deciders: "list[Any]", place: int, deadline: float
                     ) -> None:
        """Ask the plugin at `place` in `deciders` about a login."""
        runner = deciders[place]
        if access.is_paused(request):
            self._send(("connect", request[1], RATE_EXCEEDED, None))
            return
        self._put(runner, request, deadline, partial(self._ask, access, runner, request, deciders, place, deadline))

    def _ask(self, access: "Access", runner: Runner, request: "Request", deciders: "list[Any]", place: int,
             deadline: float) -> "Answer | None":
        _, handle, _, client_id, user, password, address, port, version, _, _, identity = request
        verdict = said(runner, "authenticate", runner.call("authenticate", ConnectRequest(
            client_id, user, password, address, port, version, identity)))
        if verdict.decision == "defer":
            access.decide(request, deciders, place + 1, deadline)
            return None
        if verdict.decision == "continue":
            runner.failed("authenticate", "it continues an exchange that has not begun")
            raise PluginFailedError
        good = verdict.decision == "allow"
        if user is not None:
            access.note(address, user, good)
        return login_answer(handle, verdict) if good else ("connect", handle, NOT_AUTHORISED, None)

    # ------------------------------------------------------------ exchanges [v5 4.12]

    def _extend(self, access: "Access", request: "Request", runners: list[Runner], deadline: float) -> None:
        """Begin an exchange of AUTH packets."""
        if not runners:
            self._send(("connect", request[1], BAD_METHOD, None))
            return
        if request[0] == "connect":
            _, _, _, client_id, user, _, address, _, _, method, content, _ = request
            reauth = False
        else:
            _, _, _, method, content, reauth, *who = request
            client_id, user, address = (*who, "", None, "")[:3] if len(who) < 3 else who[:3]
        step = AuthStep(method, content, True, reauth, client_id or "", user, address, {})
        self._put(runners[0], request, deadline, partial(self._step, access, runners, request, step, deadline))

    def _go_on(self, access: "Access", request: "Request", realm: "Realm", deadline: float) -> None:
        """Handle a further step, or the first step of a re-authentication."""
        with self._exchanges_lock:
            known = self._exchanges.get(request[1])
        if known is None:
            self._extend(access, request, [r for r in realm.plugins if "extended" in r.does], deadline)
            return
        runner, step = known
        step = step._replace(data=request[4], first=False)
        self._put(runner, request, deadline, partial(self._step, access, [runner], request, step, deadline))

    def _step(self, access: "Access", runners: list[Runner], request: "Request", step: AuthStep, deadline: float
              ) -> "Answer | None":
        runner, handle = runners[0], request[1]
        try:
            verdict = said(runner, "extended", runner.call("extended", step))
        except PluginFailedError:
            self._forget(handle)
            raise
        if verdict.decision == "defer" and step.first:
            if len(runners) == 1:
                return "connect", handle, BAD_METHOD, None
            self._put(runners[1], request, deadline, partial(self._step, access, runners[1:], request, step, deadline))
            return None
        if verdict.decision == "continue":
            with self._exchanges_lock:
                self._exchanges[handle] = runner, step
            return "connect", handle, CONTINUE, {"data": verdict.data or b""}
        self._forget(handle)
        good = verdict.decision == "allow"
        return login_answer(handle, verdict) if good else ("connect", handle, NOT_AUTHORISED, None)

    def _forget(self, handle: int) -> None:
        with self._exchanges_lock:
            self._exchanges.pop(handle, None)

    # ------------------------------------------------------------ access to topics

    def _authorize(self, access: "Access", request: "Request", runners: list[Runner], place: int, deadline: float
                   ) -> None:
        if place == len(runners):
            self._send(("acl", request[1], None))       # the acl_file decides; without one, access is denied
            return
        if runners[place].deny_special_chars and not self._is_plain(request):
            self._send(("acl", request[1], False))
            return
        self._put(runners[place], request, deadline,
                  partial(self._ask_authorizer, access, request, runners, place, deadline))

    def _is_plain(self, request: "Request") -> bool:
        """Return whether neither user name nor client id could act as a part of a filter in a plugin's rules."""
        client_id, user = request[3:5]
        for what, name in (("username", user or ""), ("client id", client_id)):
            if not SPECIAL.isdisjoint(name):
                now = monotonic()
                if now - self._told_special_at >= TELL_SPECIAL_EVERY_S:
                    self._told_special_at = now
                    self._say(NOTICE, f'ACL denying access to client with dangerous {what} "{name}"')
                return False
        return True

    def _ask_authorizer(self, access: "Access", request: "Request", runners: list[Runner], place: int, deadline: float
                        ) -> "Answer | None":
        runner = runners[place]
        _, handle, _, client_id, user, address, kind, topic, qos, retain, payload = request
        verdict = said(runner, "authorize", runner.call("authorize", AclRequest(
            client_id, user, address, kind, topic, qos, bool(retain), payload)))
        if verdict.decision == "defer":
            self._authorize(access, request, runners, place + 1, deadline)
            return None
        return "acl", handle, verdict.decision == "allow"

    # ------------------------------------------------------------ messages

    def _transform(self, request: "Request", runners: list[Runner], place: int, message: Message, deadline: float
                   ) -> None:
        kind = request[0]
        while place < len(runners) and not runners[place].wants(kind, message.topic):
            place += 1
        if place == len(runners):
            self._send((kind, request[1], (message.topic, message.payload, message.qos, message.retain)))
            return
        self._put(runners[place], request, deadline,
                  partial(self._ask_transformer, request, runners, place, message, deadline))

    def _ask_transformer(self, request: "Request", runners: list[Runner], place: int, message: Message, deadline: float
                         ) -> "Answer | None":
        runner, kind = runners[place], request[0]
        result = runner.call(kind, message)
        if result == DROP:
            return kind, request[1], None
        if result is None:
            result = message
        if not is_message(result):
            runner.failed(kind, "it returned no message")
            raise PluginFailedError
        self._transform(request, runners, place + 1, result, deadline)
        return None


def refused(request: "Request", rc: int) -> "Answer":
    """Return the answer that refuses a request."""
    kind, handle = request[:2]
    if kind in ("connect", "auth"):
        return "connect", handle, rc, None
    return kind, handle, (False if kind == "acl" else None)


def login_answer(handle: int, verdict: Verdict) -> "Answer":
    """Return the answer that accepts a login."""
    extra = {"username": verdict.username, "data": verdict.data}
    return "connect", handle, LET_IN, {name: value for name, value in extra.items() if value is not None} or None


def said(runner: Runner, method: str, verdict: "Any") -> Verdict:
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
