"""Answers the data plane's auth requests: logins, topic checks, changed messages. cext/broker/auth holds the
other end.

    take(requests) -> at once: remembered verdicts, pauses | checks.py: hashes | a plugin's own threads -> answer([...])

Invariants:
- One thread calls `take` and `tick`. They never wait.
- Every waiting request is in a bounded queue. If that is full, a request of a network that holds most is refused.
- The logins of all queues together hold at most `login_memory`, in equal shares.
- No work is done for a request that the data plane has given up.
- A login that only waits in our queue is not refused for that before QUEUE_S: the data plane is asked to wait.
- Answers are sent in batches, and at the latest when no more work is left.

Cost: about 30 us of Python for a login, plus its hash.
"""

import os
from collections import deque
from time import monotonic

from mosq.auth.backoff import Backoff
from mosq.auth.checks import Check, Checks
from mosq.auth.password_file import Passwords, load_passwords
from mosq.auth.verdicts import Verdicts
from mosq.config.acl import load_acl
from mosq.config.errors import ConfigError
from mosq.config.security import SecuritySource, securities_of
from mosq.log_types import NOTICE, WARNING
from mosq.reason_codes import CONNECTION_RATE_EXCEEDED, NOT_AUTHORIZED, SERVER_BUSY, SUCCESS
from mosq.records import (
    ASK_NATIVES,
    NO_OPINION,
    NOT_CHECKED,
    AccessAnswer,
    ClientNotice,
    KickCommand,
    LoginAnswer,
    LoginRequest,
    LoginWait,
    PublishCommand,
    RolesRequest,
    unasked,
)
from mosq.server.signals import Reading, Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event
    from typing import Any

    from mosq.auth.dynsec.commands import Commands
    from mosq.auth.dynsec.directory import Directory
    from mosq.auth.dynsec.document import Document
    from mosq.auth.hashes import Hash
    from mosq.auth.plugins import Plugins
    from mosq.auth.runner import Runner
    from mosq.config.model import Config
    from mosq.config.plugin import Plugin as Line
    from mosq.engine import Engine
    from mosq.records import Answer
    from mosq.records import AuthRequest as Request
    from mosq.server.admin.control import ControlTopics
    from mosq.server.workers.together import Together


WAITING_MAX = 50_000            # logins that wait for a hash
QUEUE_S = 60                    # the longest wait in the queue; afterwards auth_timeout counts, as without a wait
BATCH = 32
BATCH_S = 0.005
CLOSE_WITHIN_S = 2.0
LOG_PAUSES_EVERY_S = 10.0
SLOW_S, REPEAT_S = 5.0, 60.0    # of a plugin's initialization that is reported; before the next report
INITIALIZED_S = 0.25            # for an initialization that ends while the broker stops


class Realm:
    """The checks, plugins and rules of one security."""

    __slots__ = ("deciders", "authorizers", "plugins", "acl", "directory", "loop")

    def __init__(self) -> None:
        self.deciders: list[Any] = []       # check logins in this order: Passwords, Directory, Runners
        self.authorizers: list[Any] = []
        self.plugins: list[Any] = []
        self.acl: list[Any] | None = None
        self.directory: Directory | None = None     # dynamic security
        self.loop: list[Any] = []           # native plugins that the data plane's loop calls

    def undecided(self) -> int:
        """Return what is answered on the loop if no plugin there decides about topics: 1 allow, -1 the rules, 0 ask the
        other plugins."""
        if self.authorizers or any("subscribing" in runner.does for runner in self.plugins):
            return 0
        return 1 if self.acl is None and self.directory is None else -1

    def loop_offers(self, method: str) -> bool:
        """Return whether a plugin on the loop has this method."""
        return any(method in one.offers for one in self.loop)


class Shared:
    """Threads and remembered attempts that survive a reload. One or two `Access` objects hold it."""

    def __init__(self, threads: int, flush: "Callable[[], None]", failed: "Callable[[str], None]") -> None:
        self.checks = Checks(threads, WAITING_MAX, flush, failed)
        self.threads = threads
        self.backoff = Backoff()
        self.holders = 0


class Access:
    """All securities of one configuration."""

    def __init__(self, config: "Config", log: "Callable[[int, str], None]",
                 answer: "Callable[[list[Answer]], None] | None", earlier: "Access | None" = None,
                 acting: "Callable[[], Any] | None" = None, wait: "Callable[[Event, str], None] | None" = None,
                 reading: Reading | None = None,        # parameters: one for each service of the broker
                 document: "Document | None" = None) -> None:
        """Any thread may call `log` and `answer`; None: answers wait for `open`. `acting()` returns a context in which
        files are created with the rights of the broker's user. `wait(done, name)` waits until the plugin of this name
        is initialized. `reading`: the broker may stop while files are read and plugins are waited for, until the
        plugins are made. `document`: of dynamic security, if the broker is a worker of a cluster that has one. Raises
        ConfigError, Stopped and what `wait` raises; then the plugins are released."""
        self._log, self._answer, self._wait, self._reading = log, answer, wait, reading or Reading()
        self._outbox: deque[Answer] = earlier._outbox if earlier else deque()
        self._shared: Shared
        self._verdicts: Verdicts
        self._lines: deque[tuple[int, str]] = earlier._lines if earlier else deque(maxlen=1000)
        self._sent_at = 0.0
        self._timeout_s = float(config.auth_timeout)
        self._wait_s = max(1, config.auth_timeout)
        self._logged_pause_at = -LOG_PAUSES_EVERY_S
        self._backs_off = config.auth_backoff
        self._plugins: Plugins | None = None
        self._closed = False
        self.directory: Directory | None = None
        self.commands: Commands | None = None   # of dynamic security
        self._together: Together | None = None  # None: this broker is the only worker
        self._wake: Callable[[], None] | None = None
        self._acting = acting
        # for native plugins: the file of the log, in which a crash is reported, and the folder of the store
        files = [one.removeprefix("file ").strip() for one in config.log_dest if one.startswith("file ")]
        self.places = files[0] if files else None, config.persistence_location
        self.is_worker = config.worker > 0      # one of several
        self._engine: Callable[[], Engine] | None = None
        self._earlier_directory = earlier.directory if earlier else None
        self._document, self._is_node = document, config.cluster is not None
        self.realms = self._make_realms(config, earlier)
        self._share(config, earlier)
        self._watch_pauses()
        self._write_log()           # the lines about its files and plugins come before the broker's "running"

    # ------------------------------------------------------------ construction

    def _make_realms(self, config: "Config", earlier: "Access | None") -> list[Realm]:
        passwords: dict[str, Passwords] = {}
        rules: dict[str, list[Any]] = {}
        sources = securities_of(config)
        if any(source.plugins for source in sources):
            from mosq.auth.plugins import Plugins

            self._plugins = Plugins(self._send, self._flush, self._report, earlier._plugins if earlier else None,
                                    self._load_native, self._reading.pause)
        try:
            realms = [self._make_realm(source, passwords, rules) for source in sources]
            self._reading.end()         # plugins of an Access that a stop discards would never clean up
        except BaseException as error:
            if self._plugins is not None:
                # the broker goes on after a wrong reload; otherwise it ends, and the process perhaps with it
                goes_on = earlier is not None and isinstance(error, Exception)
                self._plugins.release(0 if goes_on else CLOSE_WITHIN_S)
            raise
        for one in passwords.values():
            for warning in one.warnings:
                self._report(WARNING, f"Warning: {warning}")
        return realms

    def _load_native(self, line: "Line", pool: "Any") -> "Any":
        """Load a native plugin, with the rights that the broker will have. Raises ConfigError."""
        from mosq.auth.native.sink import load_native

        try:
            if self._acting is None:
                return load_native(self, line, pool)
            with self._acting():            # the C library changes the rights of all threads, also of the pool's
                return load_native(self, line, pool)
        finally:
            self._write_log()           # its lines come before the error

    def _make_realm(self, source: SecuritySource, passwords: dict[str, Passwords], rules: "dict[str, list[Any]]"
                    ) -> Realm:
        realm = Realm()

        def users(path: str, origin: "Any") -> Passwords:
            if path not in passwords:
                passwords[path] = load_passwords(path, origin)
            return passwords[path]

        def acl(path: str, origin: "Any") -> list["Any"]:
            if path not in rules:
                rules[path] = list(load_acl(path, origin))
            return rules[path]

        if source.plugins:
            assert self._plugins is not None
            self._plugins.add(realm, source.plugins, users, acl, self.directory_of)
        if source.password_file is not None:
            realm.deciders.append(users(source.password_file, source.password_origin))
        if source.acl_file is not None and realm.acl is None:
            realm.acl = acl(source.acl_file, source.acl_origin)
        return realm

    def directory_of(self, line: "Line") -> "Directory":
        """Return the directory for a plugin line. All lines share one directory. A directory already in force is kept,
        with the changes that commands have made. Raises ConfigError."""
        path, init = line.directory_files()
        if self.directory is not None:
            if self.directory.path != path:
                raise ConfigError("Dynamic security can only be loaded once: expected the same file as that of another "
                                  f"line, '{self.directory.path}'.", line.origin)
            return self.directory
        earlier = self._earlier_directory
        if earlier is not None and earlier.path == path:
            self.directory = earlier
            return earlier
        if self._is_node:
            self.directory = self._shared_directory(path, line)
            return self.directory
        from mosq.auth.dynsec.directory import Directory

        if self._acting is None:
            self.directory = Directory(path, init, self._log, line.origin)
        else:
            with self._acting():
                self.directory = Directory(path, init, self._log, line.origin)
        return self.directory

    def _shared_directory(self, path: str, line: "Line") -> "Directory":
        """Return the directory of a cluster. Raises ConfigError."""
        if self._document is None:
            raise ConfigError("The cluster has no document of dynamic security yet: a node makes it when it starts "
                              "with this line. Restart mosq.", line.origin)
        from mosq.auth.dynsec.shared import SharedDirectory

        return SharedDirectory(self._document, path, self._log, line.origin)

    def answer_on(self, topics: "ControlTopics", engine: "Callable[[], Engine]",
                  in_force: "Callable[[], Access | None]", together: "Together | None" = None) -> None:
        """Register the control topics that change the directory, for the securities that use it. `together`: the
        broker is one of several workers."""
        self._engine, self._together, self._wake = engine, together, topics.wake
        if self._plugins is not None and self._plugins.natives():
            from mosq.auth.native.sink import answer_on

            answer_on(topics, self._plugins, self._report)
        directory = self.directory
        if directory is not None:
            from mosq.auth.dynsec.commands import Commands

            def places() -> list[int]:
                access = in_force()         # this one, or its successor after a reload, which may share the directory
                return [] if access is None else [i for i, realm in enumerate(access.realms)
                                                  if realm.directory is directory]

            made: type[Commands] = Commands
            if self._is_node:
                from mosq.auth.dynsec.shared import SharedCommands

                made = SharedCommands
            self.commands = made(directory, places, engine, self._log, topics.wake, together)
            self.commands.add_to(topics)

    def _share(self, config: "Config", earlier: "Access | None") -> None:
        threads = config.auth_threads or os.cpu_count() or 1
        old = earlier._shared if earlier else None
        if old is not None and old.threads == threads:
            self._shared = old
        else:
            self._shared = Shared(threads, self._flush, self._pool_failed)
            if old is not None:
                self._shared.backoff = old.backoff
        self._shared.holders += 1
        if self.directory is not None:
            self.directory.holders += 1
        size = config.auth_cache_size if config.auth_cache_seconds else 0
        seconds = float(config.auth_cache_seconds)
        kept = earlier._verdicts if earlier else None
        self._verdicts = kept if kept and (kept.size, kept.seconds) == (size, seconds) else Verdicts(size, seconds)
        self._checks, self._backoff = self._shared.checks, self._shared.backoff
        self._login_queues = [self._checks.turns]
        if self._plugins is not None:
            self._login_queues += self._plugins.login_queues()
        most = config.login_memory
        if config.memory_limit and not 0 < most <= config.memory_limit // 4:
            most = config.memory_limit // 4
        self._share_bytes = max(1, most // len(self._login_queues)) if most else 0
        self._bound_logins()

    def _bound_logins(self) -> None:
        """Give each queue of logins its share of login_memory. An abandoned reload may have changed it."""
        for queue in self._login_queues:
            queue.bytes_max = self._share_bytes

    def securities(self) -> list[dict[str, "Any"]]:
        """Return the securities as the engine takes them, in the order of securities_of()."""
        return [{
            "acl": realm.acl,
            "authenticate": bool(realm.deciders) or realm.loop_offers("authenticate"),
            "login_anonymous": realm.loop_offers("authenticate") or any(
                not getattr(one, "by_name", False) for one in realm.deciders),
            "roles": None if realm.directory is None else realm.directory.compiled(),
            "authorize": bool(realm.authorizers) or realm.loop_offers("authorize") or realm.loop_offers("subscribing")
            or any("subscribing" in runner.does for runner in realm.plugins),
            "extended": realm.loop_offers("extended") or any("extended" in runner.does for runner in realm.plugins),
            "transform_in": tuple(dict.fromkeys(f for one in (*realm.plugins, *realm.loop) for f in one.topics_in)),
            "transform_out": tuple(dict.fromkeys(f for one in (*realm.plugins, *realm.loop) for f in one.topics_out)),
            "events": bool(realm.loop) or any(runner.does_events for runner in realm.plugins),
            **native_parts(realm),
        } for realm in self.realms]

    def persisting(self) -> "list[Runner]":
        """Return the native plugins that keep the broker's state."""
        return [] if self._plugins is None else self._plugins.persisting()

    def reload(self, config: "Config", wait: "Callable[[Event, str], None] | None" = None,
               reading: Reading | None = None, document: "Document | None" = None) -> "Access":
        """Return a new Access that shares threads and verdicts with this one. The caller closes the one that is not in
        force. Raises ConfigError."""
        return Access(config, self._log, self._answer, self, wait=wait, reading=reading, document=document)

    def open(self, answer: "Callable[[list[Answer]], None]") -> None:
        """Send the answers, also those that waited: messages that plugins have published in their initialization."""
        self._answer = answer
        self._flush()

    def wait(self, done: "Event", name: str) -> None:
        """Wait until the plugin of this name is initialized. Raises Stopped if the broker stops and the plugin does
        not end its initialization at once. If it does, it gets its place, and cleans up with the other plugins."""
        try:
            with self._reading:
                self._wait_for(done, name)
        except Stopped:
            if not done.wait(INITIALIZED_S):
                raise

    def _wait_for(self, done: "Event", name: str) -> None:
        if self._wait is not None:
            self._wait(done, name)
            return
        slow_s = SLOW_S
        while not done.wait(slow_s):
            self.log(WARNING, f"Warning: Plugin {name} has not returned from its initialization; the broker waits.")
            slow_s = REPEAT_S

    def revoked(self, earlier: "Access") -> set[str]:
        """Return the users of earlier password files that now have another password or are in no password file."""
        return {user for user, _ in earlier._users() - self._users()}

    def _users(self) -> set[tuple[str, str]]:
        return {(user, hash.encoded) for realm in self.realms for one in realm.deciders if isinstance(one, Passwords)
                for user, hash in one.hashes.items()}

    def close(self) -> None:
        """Release the shared threads, wait for them for at most CLOSE_WITHIN_S, and send the last answers and log
        lines."""
        if self._closed:
            return
        self._closed = True
        self._shared.holders -= 1
        last = not self._shared.holders
        if last:
            self._checks.close(CLOSE_WITHIN_S)
        if self.directory is not None:
            self.directory.holders -= 1
            if not self.directory.holders:
                self.directory.hashing.close(CLOSE_WITHIN_S)
        if self._plugins is not None:
            self._plugins.release(CLOSE_WITHIN_S if last else 0)
        self._flush()
        self._write_log()

    # ------------------------------------------------------------ requests

    def take(self, requests: "list[Request]") -> None:
        """Start work on all requests; answer at once those that need no work."""
        deadline = monotonic() + self._timeout_s
        if self._plugins is not None:
            self._plugins.begin(self)
        for request in requests:
            if request.security >= len(self.realms):  # sent before a reload, for a security that no longer exists
                if not isinstance(request, ClientNotice):
                    self._outbox.append(unasked(request))
                elif self._plugins is not None and request.event == "disconnected":
                    self._plugins.forget(request)
            elif isinstance(request, LoginRequest) and request.pause:
                code = CONNECTION_RATE_EXCEEDED if self.refuses(request) else ASK_NATIVES
                self._outbox.append(LoginAnswer(request.handle, code))
            elif isinstance(request, LoginRequest) and request.method is None:
                self.decide(request, self.realms[request.security].deciders, 0, deadline)
            elif isinstance(request, RolesRequest):       # from the HTTP API
                self._outbox.append(AccessAnswer(request.handle, self._may_use(request)))
            elif self._plugins is not None:
                self._plugins.take(self, request, self.realms[request.security], deadline)
            elif not isinstance(request, ClientNotice):       # the data plane should not have sent it
                self._outbox.append(unasked(request))
        if self._outbox:
            self._flush()
        if self._lines:
            self._write_log()

    def tick(self) -> None:
        """Do the work that is due once a second: time-outs of plugins, waiting answers, log lines."""
        self._bound_logins()
        if self._plugins is not None:
            self._plugins.begin(self)
            self._plugins.tick(monotonic(), self._timeout_s)
        self._watch_pauses()
        self._flush()
        self._write_log()

    def decide(self, request: LoginRequest, deciders: list["Any"], place: int, deadline: float) -> None:
        """Ask the decider at this place; if it has no opinion, go on to the next."""
        if place == len(deciders):
            # As in Mosquitto: without a user name allow_anonymous decides; an unknown user name is refused.
            if not deciders and not self.realms[request.security].loop_offers("authenticate"):
                code = NOT_CHECKED          # all plugins have ignored the login
            else:
                code = NO_OPINION if request.username is None else NOT_AUTHORIZED
            self._outbox.append(LoginAnswer(request.handle, code))
        elif isinstance(deciders[place], Passwords):
            if request.username is None:
                self.decide(request, deciders, place + 1, deadline)
            else:
                self._look_up(request, deciders[place], deadline)
        elif getattr(deciders[place], "by_name", False):
            self._check_directory(request, deciders, place, deadline)
        else:
            assert self._plugins is not None
            self._plugins.authenticate(self, request, deciders, place, deadline)

    def _look_up(self, request: LoginRequest, passwords: Passwords, deadline: float) -> None:
        if request.password is None or request.username is None:
            self._outbox.append(LoginAnswer(request.handle, NOT_AUTHORIZED))
            return
        self._verify(request, passwords.hashes.get(request.username), passwords.decoy, deadline)

    def _check_directory(self, request: LoginRequest, deciders: list["Any"], place: int, deadline: float) -> None:
        directory: Directory = deciders[place]
        user, complete = request.username, request.username is not None and request.password is not None
        client = directory.client(user) if user is not None and complete else None
        if client is None and (not complete or place + 1 < len(deciders)):
            self.decide(request, deciders, place + 1, deadline)
        else:
            known = client.hash if client is not None and directory.may_log_in(client, request.client_id) else None
            self._verify(request, known, directory.decoy, deadline)

    def _verify(self, request: LoginRequest, known: "Hash | None", decoy: "Hash | None", deadline: float) -> None:
        """Hash the password. If `known` is None, the login is refused after the same time as a wrong password."""
        handle, user, password, address = request.handle, request.username, request.password, request.address
        assert user is not None
        assert password is not None
        key = None
        if known is not None and self._verdicts.size:
            key = self._verdicts.key(known, user, password)
            if self._is_proved(key, address, user):
                self._outbox.append(LoginAnswer(handle, SUCCESS))
                return
        hash = known or decoy
        if hash is None:                        # an empty file: no user name can be guessed from the timing
            self._outbox.append(LoginAnswer(handle, NOT_AUTHORIZED))
            return
        if self._refuses(address, user):
            self._outbox.append(LoginAnswer(handle, CONNECTION_RATE_EXCEEDED))
            return
        waits = self._checks.waiting()
        if waits:
            deadline = monotonic() + QUEUE_S
        check = Check(self, handle, user, password, address, hash, known is not None, key, deadline)
        if waits and handle >= 0:       # sent first; handles below 0 (HTTP API) need no extension
            self._outbox.append(LoginWait(handle, QUEUE_S + self._wait_s))
        self._checks.put(check, self.trusts(request))

    # ---- called by checks.py in its threads

    def is_due(self, check: Check) -> bool:
        """Return whether the password must still be hashed. If not, the login is answered, or the data plane has given
        it up."""
        if monotonic() > check.deadline:
            self._send(LoginAnswer(check.handle, SERVER_BUSY))
            return False
        # an earlier request in the queue may have proved it
        if check.key is not None and self._is_proved(check.key, check.address, check.user):
            self._send(LoginAnswer(check.handle, SUCCESS))
            return False
        if self._refuses(check.address, check.user):
            self._send(LoginAnswer(check.handle, CONNECTION_RATE_EXCEEDED))
            return False
        return True

    def checked(self, check: Check, matches: bool) -> None:
        """Answer a login after its hash was compared."""
        good = matches and check.known
        self.note(check.address, check.user, good)
        if good and check.key is not None:
            self._verdicts.remember(check.key)
        self._send(LoginAnswer(check.handle, SUCCESS if good else NOT_AUTHORIZED))

    def unchecked(self, check: Check) -> None:
        """Answer a login whose check failed because of an error in the broker."""
        self._send(LoginAnswer(check.handle, SERVER_BUSY))

    def _may_use(self, request: RolesRequest) -> bool | None:
        directory = self.realms[request.security].directory
        return None if directory is None else directory.may_use(request.username, request.client_id, request.topic,
                                                                request.access)

    # ------------------------------------------------------------ pauses

    def _is_proved(self, key: bytes, address: str, user: str) -> bool:
        """Return whether a remembered verdict accepts this login. In a pause it counts only for a user that has
        logged in from the address before, so that a guesser learns nothing from it."""
        if not self._verdicts.knows(key):
            return False
        return not self._is_paused(address, user) or self._backoff.trusts(address, user)

    def _is_paused(self, address: str, user: str) -> bool:
        return self._backs_off and self._backoff.refuses(address, user)

    def _refuses(self, address: str, user: str) -> bool:
        """Return whether a login is refused because of earlier failures of its user or address, and count it."""
        if not self._is_paused(address, user):
            return False
        self._backoff.refused()
        return True

    def refuses(self, request: LoginRequest) -> bool:
        """Return whether a login is refused because of earlier failures of its user or address, and count it."""
        return request.username is not None and self._refuses(request.address, request.username)

    def _watch_pauses(self) -> None:
        """Let native plugins that the loop calls report the outcome of logins, and ask about pauses while there are
        failures."""
        if any(realm.loop for realm in self.realms):
            from mosq.auth.native.sink import watch_pauses

            watch_pauses(self._backs_off, self._backs_off and self._backoff.remembers())

    # ---- called for native plugins, in any thread

    def log(self, type_bit: int, text: str) -> None:
        """Log a line at once."""
        self._report(type_bit, text)
        self._write_log()

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool,       # parameters: a message
                properties: bytes | None, client_id: str | None) -> None:
        """Publish a message; with a client id, to its session alone."""
        command = PublishCommand(topic, payload, qos, retain, None, properties, client_id)
        self._send(command)
        self._flush()
        if client_id is not None:       # its session may be that of another worker
            self._ask_others(lambda others: others.publish(command))

    def kick_client(self, client_id: str | None) -> None:
        """End the connection of a client, at whichever worker; None: of all."""
        self.kick_here(client_id)
        self._ask_others(lambda others: others.kick(client_id))

    def kick_here(self, client_id: str | None) -> None:
        """Do that at this worker."""
        if self._engine is not None:
            engine = self._engine()
            for name in ([client_id] if client_id is not None else [str(one["id"]) for one in engine.clients()]):
                engine.kick(name)

    def kick_user(self, username: str | None) -> None:
        """End the connections of a user; None: of clients without a user name."""
        self._send(KickCommand([username]))
        self._flush()
        self._ask_others(lambda others: others.kick_users(username))

    def _ask_others(self, call: "Callable[[Together], None]") -> None:
        if self._together is not None and self._wake is not None:
            call(self._together)
            self._wake()

    def complete(self, connection: int, login: int, result: int, address: str, user: str | None) -> None:
        """Answer a login that a native plugin has delayed. `login`: its handle, if the loop has asked."""
        from mosq.auth.native.plugin import refusal_code

        code = SUCCESS if result == 0 else refusal_code(result)
        if login:
            if user is not None:
                self.note(address, user, code == SUCCESS)
            self._send(LoginAnswer(login, code))
            self._flush()
        elif self._plugins is not None:
            self._plugins.complete(connection, None if result in (17, 32) else code)

    def note_logins(self, note: "Callable[[int, int], None]") -> None:
        """Call `note` with the numbers of failed and refused logins when one has risen, also after a reload."""
        self._backoff.note = note

    def backoff_counts(self) -> dict[str, int]:
        """Return the counts of auth_backoff; any thread may call this."""
        return self._backoff.counts()

    def trusts(self, request: LoginRequest) -> bool:
        """Return whether the user has logged in from the address within a day. Only auth_backoff notes that."""
        return request.username is not None and self._backoff.trusts(request.address, request.username)

    def note(self, address: str, user: str, good: bool) -> None:
        """Count the outcome of a login for the pauses of its address and user name."""
        if not self._backs_off:
            return
        if good:
            self._backoff.succeeded(address, user)
            return
        pause_s = self._backoff.failed(address, user)
        self._watch_pauses()
        now = monotonic()
        if pause_s and now - self._logged_pause_at >= LOG_PAUSES_EVERY_S:
            self._logged_pause_at = now
            self._report(NOTICE, f"Too many logins from {address} fail; the broker refuses logins from it for "
                                 f"{pause_s:.1f} s.")

    # ------------------------------------------------------------ answers, log

    def send(self, answer: "Answer") -> None:
        """Queue an answer; see `_send`."""
        self._send(answer)

    def _send(self, answer: "Answer") -> None:
        """Queue an answer; any thread may call this. The caller calls `_flush` when it has no more work."""
        self._outbox.append(answer)
        if len(self._outbox) >= BATCH or monotonic() - self._sent_at >= BATCH_S:
            self._flush()

    def _flush(self) -> None:
        if self._answer is None:
            return
        batch: list[Answer] = []
        try:
            while True:
                batch.append(self._outbox.popleft())
        except IndexError:
            pass
        if not batch:
            return
        self._sent_at = monotonic()
        try:
            self._answer(batch)
        except Exception as error:              # one answer cannot be sent: send the others one by one
            self._report(WARNING, f"Warning: An auth request could not be answered: {type(error).__name__}.")
            if len(batch) > 1:
                for one in batch:
                    self._give(one)

    def _give(self, answer: "Answer") -> None:
        assert self._answer is not None
        try:
            self._answer([answer])
        except Exception:                       # logged already
            pass

    def _report(self, type_bit: int, text: str) -> None:
        self._lines.append((type_bit, text))

    def _write_log(self) -> None:
        try:
            while True:
                self._log(*self._lines.popleft())
        except IndexError:
            pass

    def _pool_failed(self, name: str) -> None:
        self._report(WARNING, f"Warning: A login could not be checked: {name}.")


def native_parts(realm: Realm) -> dict[str, "Any"]:
    """Return what the data plane needs to know of the native plugins of a security."""
    plugins = [runner.plugin for runner in realm.plugins if runner.raw]
    if not plugins:
        return {}
    from mosq.auth.native.sink import loop_of, psk_of

    knowing = [plugin for plugin in plugins if plugin.knows_keys]
    return {"native": True,
            "each": realm.loop_offers("authorize") or any(runner.raw for runner in realm.authorizers),
            "filters": any(runner.decides_filters for runner in realm.plugins),
            "native_loop": loop_of(realm.loop, realm.undecided(), not realm.deciders) if realm.loop else None,
            "psk_native": psk_of(knowing) if knowing else None}
