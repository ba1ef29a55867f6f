"""The control plane's main thread. It starts the data plane in a thread, then waits for signals and for log lines and
requests of the data plane. No message passes through here: a wait here (a slow log) delays no client.

    start -> open (bind) -> pid file -> drop rights -> run ... SIGTERM or SIGINT -> stop -> last log lines -> exit 0
                                                        |
                SIGHUP: reload.py   SIGRTMIN: reopen log files   SIGUSR2: print trees   SIGUSR1: saving.py
                SIGRTMIN+1: upgrade/leaving.py, and upgrade/arrival.py in the new process

The loop begins to serve clients before the rest of the control plane is loaded: what a plain start does not need until
then is imported in the functions that need it, and log lines are held (tests/cli/test_start.py counts the modules).
"""

import os
import time

from mosq.config.errors import ConfigError, text_of
from mosq.config.model import Config
from mosq.config.plugin import has_store
from mosq.engine import new_engine
from mosq.log.log import STDERR_FD, STDOUT_FD, Log, log_of
from mosq.log_types import ERROR, INFORMATION, WARNING
from mosq.server import process, signals
from mosq.server.loop import DataPlane
from mosq.server.opening import compact_lines, opening_lines, reachable
from mosq.server.settings import (
    engine_listeners,
    engine_securities,
    engine_settings,
    http_listeners,
    log_mask,
    needs_access,
)
from mosq.version import MOSQUITTO_VERSION, VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable
    from threading import Event
    from typing import Any

    from mosq.auth.runner import Runner
    from mosq.engine import BridgeSpec, Engine, Security, SettingValue
    from mosq.log.destinations import Stream
    from mosq.records import Answer, Request
    from mosq.server.access import Access
    from mosq.server.admin.control import ControlTopics
    from mosq.server.admin.hot import Hot
    from mosq.server.bridge.bridges import Bridges
    from mosq.server.feeding import Feeder
    from mosq.server.http.dashboard.api import Dashboard
    from mosq.server.http.listeners import HttpListener
    from mosq.server.http.metrics import Metrics
    from mosq.server.http.server import HttpApi
    from mosq.server.saving import Counting, Saver
    from mosq.server.signals import Signals
    from mosq.server.unkept import Unkept
    from mosq.server.upgrade.arrival import Arrival
    from mosq.server.upgrade.leaving import Upgrade
    from mosq.server.workers.worker import Worker

EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_CONFIG = 3


UPGRADE_VARIABLE = "MOSQ_UPGRADE_FD"      # FD_VARIABLE of upgrade/channel.py, which a plain start does not import
UPGRADE_EVENTS = 1               # select.POLLIN
STOP_AGAIN_S = 0.05
HTTP_OPENED_WITHIN_S, HTTP_AGAIN_S = 1.0, 0.02          # after the old process of an upgrade has ended
STOP_WITHIN_S = 0.8             # part of the one second that a stop may take
SIGNALS_BYTES = 1024          # of one read from a signalfd
INITIALIZED_WITHIN_S, INITIALIZED_LOOK_MS = 0.5, 20     # of a plugin at a reload: before clients are served; a look
TICK_S = 1.0                    # period of time-outs, for example of plugins

# in Mosquitto's wording and order
FEATURES = (("Bridge", True), ("Persistence", True), ("TLS", True), ("TLS-PSK", True), ("Websockets", True))


class CannotStartError(Exception):
    """The broker cannot start: the text to print and the exit status. `wrong_config`: because of its configuration.
    `reported`: a worker has logged and printed the text."""

    def __init__(self, text: str, status: int = EXIT_CANNOT_START, wrong_config: bool = False,
                 reported: bool = False) -> None:
        super().__init__(text)
        self.text, self.status, self.reported = text, status, reported
        self.wrong_config = wrong_config or status == EXIT_CONFIG


def serve(                              # parameters: the command line, and what a test or a parent replaces
          config: Config, *, taken: "Signals", quiet: bool = False, verbose: bool = False, background: bool = False,
          load: "Callable[[], Config] | None" = None,
          make_engine: "Callable[..., Engine]" = new_engine, worker: "Worker | None" = None) -> int:
    """Run a broker until it is stopped; return the exit status of the process. `load` reads the configuration again at
    SIGHUP. `taken`: the signals of the process, in force since before the configuration was read. `worker`: this broker
    is one of several."""
    control = Control(config, taken, quiet, verbose, load, worker)
    before = signals.block_reload() if worker is None else None     # the parent of a worker reloads
    try:
        try:
            control.prepare()
            in_background = process.Background() if background and control.arrival is None else None
            process.room_for_descriptors()
            taken.defer()
            control.start(make_engine)
            return control.run(in_background)
        except signals.Stopped:
            return EXIT_OK              # nothing is open yet
        except CannotStartError as error:
            if control.arrival is not None:
                control.arrival.refuse(error.text)
            report_failure(control.log, error.text)
            if worker is not None:
                worker.failed(error)
            return error.status
        finally:
            control.remove_pid_file()
            if control.unkept is not None:
                control.unkept.close()
    finally:
        if before is not None:
            signals.unblock(before)
        control.log.flush()


def report_failure(log: "Log", text: str) -> None:
    """Log why the broker cannot start, and print it on stderr too: the log may be switched off or not be open."""
    if "stderr" not in log.dests:
        for line in text.splitlines():
            log.report(ERROR, line)
    log.flush()
    os.write(STDERR_FD, f"{text}\n".encode("utf-8", "backslashreplace"))


class Control:
    """The control plane of one broker."""

    engine: "Engine"
    loop: DataPlane
    saver: "Saver | Counting"       # writes mosquitto.db

    def __init__(self, config: Config, taken: "Signals", quiet: bool, verbose: bool,
                 load: "Callable[[], Config] | None", worker: "Worker | None" = None) -> None:
        self.worker = worker            # the parent of the workers does its part of the start, the stop and a reload
        self.config, self.quiet, self.verbose, self.load = config, quiet, verbose, load
        self.signals = taken
        self.log: Log = log_of(config, log_mask(config, quiet, verbose))
        self.securities: list[Security] = []
        self.access: Access | None = None       # checks passwords and runs plugins; None if no security needs it
        self.bridges: Bridges | None = None     # None if no bridge is configured
        self.http_listeners: list[HttpListener] = []
        self.http: HttpApi | None = None
        self.earlier_http: HttpApi | None = None    # a reload replaced it; it sends its last answers
        self.http_requests: deque[Request] | None = None        # auth requests of the HTTP API
        self.user: process.Account | None = None
        self._topics: ControlTopics | None = None
        self._hot: Hot | None = None
        self.store: str | None = None   # folder of the store that the broker has begun with
        self.feeder: Feeder | None = None       # of persistence plugins; None if there was never one
        self.unkept: Unkept | None = None       # the broker runs without the store that it should have
        self.printers: dict[int, Stream] = {}   # of standard output and standard error, by descriptor
        self.alive = False              # whether the loop has answered the watchdog
        self.pid_file: str | None = None
        self.status = EXIT_OK
        self.stopping = False           # whether the last line of the log is due
        self.arrival: Arrival | None = None     # the clients of another process come to this one
        self.upgrade: Upgrade | None = None     # another process is about to take over
        self.left = 0                   # id of the process that has taken over; 0: none
        self.for_successor: list[int] = []      # signals that the process that takes over must get, too
        self.began_s = time.monotonic()
        self.starting = True            # until the bridges have started
        self._tick_s = 0.0              # time of the next tick

    # ---- start

    def prepare(self) -> None:
        """Do the steps that need no engine and whose errors must be printed before the process goes to the background.
        Raises CannotStartError."""
        if any(listener.certfile or listener.psk_hint for listener in self.config.listeners):
            import mosq._tls  # noqa: F401 - before hashlib and ssl: OpenSSL's memory is counted only from its first use on
        try:
            if UPGRADE_VARIABLE in os.environ:
                from mosq.server.upgrade.arrival import Arrival

                self.arrival = Arrival()
            self.user = process.find_account(self.config.user)
            process.set_umask()
            with process.Acting(self.user):
                wrong = self.log.open()
            for text in wrong:
                os.write(2, f"Error: {text}\n".encode("utf-8", "backslashreplace"))
        except LookupError as error:
            raise CannotStartError(f"Error: {error}", EXIT_CONFIG) from None
        except (OSError, ValueError) as error:
            raise CannotStartError(f"Error: {text_of(error)}") from None

    def start(self, make_engine: "Callable[..., Engine]") -> None:
        """Open the engine, listeners, store, pid file and give up rights. Raises CannotStartError."""
        if self.worker is None:
            report_start(self.log, self.config)
        try:
            with self.signals.reading:
                self.access, self.securities = self.access_of(self.config)
            self.report_patterns(self.securities)
            self.engine = self._open(make_engine)
            if self.access is not None:
                self.access.open(self.answer)
        except ConfigError as error:
            raise CannotStartError(str(error), getattr(error, "exit_status", EXIT_CONFIG), wrong_config=True) from None
        except ValueError as error:
            raise CannotStartError(f"Error: {error}", EXIT_CONFIG) from None
        except ImportError as error:
            from mosq.built import why_not_loaded

            raise CannotStartError(why_not_loaded(error) or f"Error: {error}: the installation of mosq or of Python "
                                   "is incomplete, or the broker's user may not read it") from None
        except OSError as error:
            raise CannotStartError(f"Error: {text_of(error)}") from None
        try:
            self._settle()
        except OSError as error:
            raise CannotStartError(f"Error: {text_of(error)}") from None

    def _open(self, make_engine: "Callable[..., Engine]") -> "Engine":
        has_topics = self.config.enable_control_api or self.access is not None
        settings = self.settings(self.config, self.topics if has_topics else None)
        engine = make_engine(settings, engine_listeners(reachable(self.config)), self.securities,
                             *self.bridge_specs(self.config))
        for listener in self.config.listeners if self.worker is None else ():
            for line in opening_lines(listener):
                self.log.report(INFORMATION, line)
        if self.arrival is None:
            self.http_listeners = self.open_http_listeners(self.config)
        else:
            process.map_threads()       # before the other process stops to serve
            self.log.release()
            self.arrival.hello(engine)
        if self.worker is not None:
            self.worker.join(engine)        # the store has what its links must know
        self._open_store(engine)
        if self.arrival is not None:
            self.arrival.restore(engine, self.log.report)
        self.reload_fd = engine.watch_reload(signals.RELOAD)    # never readable in a worker, which holds CONNECT too
        if self.arrival is None:
            process.map_threads()
        if self.worker is None:
            engine.open()
        else:
            self.worker.open(engine)
        return engine

    def _open_store(self, engine: "Engine") -> None:
        """Open the store before a client can connect. Its files belong to the broker's user."""
        feeder = self._feeder()         # its modules are loaded while the process may read them
        if not has_store(self.config):
            return
        if self.worker is not None and self.worker.open_store(engine, self.config, self.log.report):
            return
        from mosq.server.storage import may_divide, may_take_over, open_store, store_directory
        from mosq.server.unkept import Unkept, must_stop, unusable

        self.store = store_directory(self.config)
        self.log.release()              # to read a large store takes long
        if may_take_over(self.config) or feeder is not None or may_divide(self.config):
            process.load_now(process.LOADED_FOR_TAKE_OVER)
        with process.Acting(self.user):
            wrong = must_stop(self.config)
            if wrong is not None:
                raise OSError(wrong)
            self.config.without_store = unusable(self.config) or ""
            if not self.config.without_store:
                if self.arrival is not None and self.store is not None:
                    self.arrival.check_store(self.store)
                if feeder is not None:
                    with self.signals.reading:
                        feeder.restore(self._persisting())
                open_store(engine, self.config, self.log.report, feeder)
        if self.config.without_store:
            self.unkept = Unkept(self.config, self.log.report, time.monotonic())
            with process.Acting(self.user):
                self.unkept.load(engine)

    def _persisting(self) -> "list[Runner]":
        return [] if self.access is None else self.access.persisting()

    def _feeder(self) -> "Feeder | None":
        """Return the feeder of persistence plugins; None if there was never one."""
        if self.feeder is None and self._persisting():
            from mosq.server.feeding import Feeder

            self.feeder = Feeder(self.log.report, self._commits)
        return self.feeder

    def _commits(self) -> int:
        """Return the batches that the store has written; 0 if the loop does not run."""
        try:
            return int(self.engine.stats()["disk_commits"])
        except RuntimeError:
            return 0

    def _feed(self) -> None:
        """Feed the persistence plugins of the configuration in force."""
        feeder = self._feeder()
        if feeder is not None:
            from mosq.server.saving import ports_of

            store = None if self.config.without_store else self.store
            feeder.feed(self._persisting(), store, ports_of(self.config))

    def _end_feeding(self) -> None:
        """Settle what is left of the store when the data plane and the plugins have ended."""
        from mosq.server.handover import database_kept

        config = self.config
        if self.feeder is not None and self.store is not None:
            own = config.persistence or bool(config.stream) or bool(config.stream_events)
            self.feeder.end(self.store, own, database_kept(config))

    def report_patterns(self, securities: "list[Security]") -> None:
        """Report patterns in ACL files that are the same for all clients."""
        from mosq.config.acl import acl_warnings

        lines = [line for security in securities for line in acl_warnings(security["acl"] or [])]
        for line in dict.fromkeys(lines):
            self.log.report(WARNING, f"Warning: {line}")

    def access_of(self, config: Config) -> "tuple[Access | None, list[Security]]":
        """Return the Access for a configuration (None if no security needs one) and the securities for the data plane.
        Raises ConfigError."""
        if not needs_access(config):
            return None, engine_securities(config)
        self.log.release()              # plugins are foreign code
        reading = self.signals.reading
        document = None if self.worker is None else self.worker.document
        if self.access is not None:
            access = self.access.reload(config, self._serve_until, reading, document)
        else:
            from mosq.server.access import Access

            is_root = os.geteuid() == 0        # false at a reload, when rights are already given up
            access = Access(config, self.log.report, None if self.starting else self.answer,
                            acting=(lambda: process.Acting(self.user)) if is_root else None,
                            wait=None if self.starting else self._serve_until, reading=reading, document=document)
        if self.worker is not None:
            access.note_logins(lambda failed, refused: self.engine.note_logins(failed, refused))
        config.kept_by_plugin = bool(access.persisting())
        try:
            if self.worker is not None and config.kept_by_plugin:
                raise ConfigError(f"The plugin '{access.persisting()[0].path}' keeps the broker's state, and "
                                  f"cannot be used with `cluster_local {config.cluster_local}`. Expected "
                                  "`cluster_local 1`, or a plugin without persistence.")
            return access, access.securities()
        except BaseException:           # the plugins that both configurations have must end with the other
            access.close()
            raise

    def bridge_specs(self, config: Config) -> "tuple[list[BridgeSpec], ...]":
        """Return the engine's last argument if bridges are configured, here or at another worker, or were before a
        reload."""
        if not config.bridges and not config.bridges_elsewhere and self.bridges is None:
            return ()
        from mosq.server.bridge.bridges import specs_of

        return (specs_of(config),)

    def start_bridges(self) -> None:
        """Start the bridges at the start; apply the new configuration to them after a reload."""
        if self.bridges is not None:
            self.bridges.reload(self.config)
        elif self.config.bridges:
            from mosq.server.bridge.bridges import Bridges

            admit = None if self.worker is None else self.worker.bridged
            self.bridges = Bridges(self.engine, self.log.report, self.signals.wake, asked=self.worker is not None,
                                   admit=admit)
            if self.starting:
                self.bridges.hold_clients()
            self.bridges.reload(self.config)

    def open_http_listeners(self, config: Config) -> "list[HttpListener]":
        """Return the bound listeners of the HTTP API, which are not served yet. Raises OSError."""
        listeners = http_listeners(config)
        if not listeners:
            return []
        from mosq.server.http.listeners import open_listeners

        before = [one.bound for one in self.http_listeners]
        if self.worker is not None:
            if self.worker.http is None:
                return []               # another worker serves them
            before += self.worker.http
        return open_listeners(listeners, before)

    def start_http(self) -> None:
        """Start the HTTP API if it has a listener."""
        if not self.http_listeners:
            return
        from collections import deque

        from mosq.config.security import places_of, securities_of
        from mosq.server.http.gate import Gate
        from mosq.server.http.pages import Pages
        from mosq.server.http.server import HttpApi

        for one in self.http_listeners:
            for line in one.warnings:
                self.log.report(WARNING, f"Warning: {line}")
        if self.http_requests is None:
            self.http_requests = deque()
        self.http = HttpApi(self.http_listeners)
        gate = Gate(self.config, self.securities, places_of(securities_of(self.config)), self._request_access,
                          self.config.auth_timeout)
        pages = Pages(self.config, f"{MOSQUITTO_VERSION} (mosq {VERSION})", self.whole.stats, self._metrics(),
                      lambda: self.starting, self._dashboard(), self._began())
        self.http.start(pages, gate, self.log.report)

    def _metrics(self) -> "Metrics | None":
        """Return what `/metrics` shows; None if no listener serves it."""
        if not any(one.config.http_metrics for one in self.http_listeners):
            return None
        from mosq.config.plugin import has_store
        from mosq.server.http.metrics import Metrics

        logins = self._logins if self.worker is None else self.worker.whole.logins
        return Metrics(VERSION, lambda: has_store(self.config), self.whole, self._bridge_states, logins, self.hot,
                       self._whole_process())

    def _whole_process(self) -> "Callable[[], dict[str, Any]]":
        return self._process if self.worker is None else self.worker.whole.process

    def _began(self) -> float:
        """Return the start of the broker (monotonic), which may be before that of this worker."""
        if self.worker is None:
            return self.began_s
        return time.monotonic() - self.engine.whole().uptime_ms / 1000

    def _logins(self) -> "dict[str, int]":
        return {} if self.access is None else self.access.backoff_counts()

    def _process(self) -> "dict[str, Any]":
        from mosq.server.admin.inspect import own_process

        return own_process()

    @property
    def whole(self) -> "Engine":
        """The engine; of one of several workers, the engines of all."""
        return self.engine if self.worker is None else self.worker.whole

    def _dashboard(self) -> "Dashboard | None":
        if not any(one.config.http_dashboard for one in self.http_listeners):
            self.log.recent = None
            return None
        from mosq.log.recent import Recent
        from mosq.server.http.dashboard.api import Broker, Dashboard

        if self.log.recent is None:
            self.log.recent = Recent()
        return Dashboard(Broker(self.config, self.whole, self.log.recent, self._bridge_states,
                                signals.ask_reload if self.worker is None else self.worker.ask_reload,
                                self.log.report, self._began()), self.hot,
                         None if self.worker is None else self.worker.whole.process)

    @property
    def topics(self) -> "ControlTopics":
        """The control topics that the configuration in force answers."""
        if self._topics is None:
            self._topics = self.topics_of(self.config, self.access)
        return self._topics

    @topics.setter
    def topics(self, topics: "ControlTopics") -> None:
        self._topics = topics

    def topics_of(self, config: Config, access: "Access | None") -> "ControlTopics":
        """Return the control topics that this configuration answers."""
        from mosq.server.admin.topics import topics_of

        topics = topics_of(config, lambda: self.whole, self.log.report, self._wake, self._bridge_states,
                           lambda: self.hot, lambda: self._whole_process()())
        if access is not None:
            access.answer_on(topics, lambda: self.whole, lambda: self.access,
                             None if self.worker is None else self.worker.together)
        return topics

    @property
    def hot(self) -> "Hot":
        """Hot names and slow clients; shared by the control topics and the HTTP API."""
        if self._hot is None:
            from mosq.server.admin.hot import Hot

            self._hot = Hot(lambda: self.whole)
        return self._hot

    def _wake(self) -> None:
        self.signals.wake()

    def _bridge_states(self) -> "list[dict[str, Any]]":
        """Return the states of the bridges of all workers."""
        if self.worker is None:
            return self._own_bridge_states()
        return self.worker.whole.bridge_states()

    def _own_bridge_states(self) -> "list[dict[str, Any]]":
        if self.bridges is None:
            return []
        from mosq.server.admin.bridges import states

        return states(self.bridges)

    def settings(self, config: Config, topics: "ControlTopics | None") -> "dict[str, SettingValue]":
        """Return the settings of the engine for a configuration."""
        settings = engine_settings(config, self.mask(config))
        settings["memory_watch"] = 1            # the process has nothing but the broker
        settings["keep_publishers"] = int(config.kept_by_plugin)
        settings["log_json"] = int(config.log_format == "json")
        settings["control_topics"] = topics.names() if topics is not None else ()
        return settings

    def mask(self, config: Config) -> int:
        """Return the enabled types of log lines for a configuration."""
        return log_mask(config, self.quiet, self.verbose)

    def _settle(self) -> None:
        if self.arrival is None:
            self._write_pid_file()      # with root's rights, if the process has them
        if self.http_listeners:
            import mosq.server.http.server  # load it while root's rights may be needed to read it
            if any(one.config.http_dashboard for one in self.http_listeners):
                import mosq.log.recent
                import mosq.server.http.dashboard.api  # noqa: F401 - the same
        if self.user is not None:
            self._report_unreadable(self.user)
            # As in Mosquitto, the files of Unix sockets belong to the broker's user, so their owner and group can
            # connect.
            process.become(self.user, [x.path for x in self.config.listeners if x.path is not None
                                       and self.worker is None])
        if self.worker is None:
            report_user(self.log, self.user)
        if self.arrival is not None:
            self.arrival.wait_go(self.log.report)
            try:
                self._write_pid_file()
            except OSError as error:        # no other process is left that could go on
                self.log.report(WARNING, f"Warning: {error}. The file has the number of the old process; this one is "
                                         f"{os.getpid()}. Give the folder of the file to the broker's user.")

    def _write_pid_file(self) -> None:
        if self.config.pid_file is None:
            return
        try:
            process.write_pid_file(self.config.pid_file)
        except OSError as error:
            raise OSError(f"Unable to write pid file {self.config.pid_file}: {error.strerror}") from None
        self.pid_file = self.config.pid_file

    def _report_unreadable(self, user: process.Account) -> None:
        """Report files that root read and that a reload could not read again."""
        if self.access is None and not any(one["acl"] for one in self.securities) and not any(
                listener.certfile or listener.psk_hint for listener in self.config.listeners):
            return                      # the configuration names no file
        from mosq.config.files import not_reloadable

        with process.Acting(user):
            found = not_reloadable(self.config)
        for pointer in found:
            self.log.report(WARNING, f"Warning: {pointer.option} {pointer.path} was read as root, and the user "
                                     f"{user.name} cannot read it: a reload will not load it again. `mosq doctor` "
                                     "shows how to give it to that user.")

    def remove_pid_file(self) -> None:
        """Remove the pid file if this broker wrote it."""
        if self.pid_file is not None:
            process.remove_pid_file(self.pid_file)

    # ---- run

    def run(self, in_background: process.Background | None) -> int:
        """Start the loop, serve until the end, and stop; return the exit status."""
        self.loop = DataPlane(self.engine, self.signals)
        if self.config.bridges or self.config.bridges_elsewhere:
            self.engine.hold_connects(True)     # until Bridges.admit_clients: the first message must find the bridges
        self.loop.start()
        self.loop.wait_ready()          # a SIGHUP may wait already, and bridges have commands
        # from here on clients are served
        from mosq.server import systemd
        from mosq.server.saving import Counting, Saver, Waiting, changes_of

        self.log.release()
        if self.worker is not None:
            self.worker.begin(self.engine, self._wake, {"process": self._process, "logins": self._logins,
                                                        "bridge_states": self._own_bridge_states})
        def changes() -> tuple[int, int]:
            return changes_of(self.engine)

        if self.worker is None:
            self.saver = Saver(self.config, changes, self.log.report, lambda job: Waiting(job, self._wake))
        else:
            self.saver = Counting(self.config, changes, self.worker.changed)
        self._publish_log()
        self._feed()
        if self.arrival is not None:
            self._arrival_end(self.arrival)
        self.start_http()
        self.start_bridges()
        self.starting = False
        if in_background is not None:
            in_background.ready()
        within_s = systemd.watchdog_s() if self.worker is None else self.config.cluster_watchdog
        answered = self._loop_answered if self.worker is None else self.worker.alive
        watchdog = systemd.Watchdog(self.engine, within_s, answered) if within_s else None
        if self.worker is None:
            self.log.report(INFORMATION, f"mosq version {VERSION} running")
            systemd.notify("READY=1")
        else:
            self.worker.ready()
            if not self.config.bridges:
                self.worker.bridged()
        process.load_now(process.LOADED_WHILE_SERVING + (process.LOADED_FOR_SAVING if self.saver.saves() else ()))
        by_signal = self._serve()
        if self.left:
            return self._leave()
        self._upgrade_cancel("the broker stops", False)
        systemd.notify("STOPPING=1")
        if watchdog:
            watchdog.stop()
        for http in (self.http, self.earlier_http):
            if http is not None:
                http.stop()
        return self._stop(by_signal)

    def _arrival_end(self, arrival: "Arrival") -> None:
        """Open the HTTP listeners when the process before has ended, which has the same addresses."""
        self.arrival = None
        if http_listeners(self.config):
            arrival.wait_end()
            # the kernel closes the channel and the other sockets of the old process one after the other
            give_up_s = time.monotonic() + HTTP_OPENED_WITHIN_S
            while not self.http_listeners:
                try:
                    self.http_listeners = self.open_http_listeners(self.config)
                except OSError as error:
                    if time.monotonic() < give_up_s:
                        time.sleep(HTTP_AGAIN_S)
                        continue
                    self.log.report(ERROR, "Error: Upgrade: the HTTP listeners cannot be opened, a restart is needed: "
                                           f"{text_of(error)}.")
                    break
        arrival.close()

    def _serve(self) -> bool:
        """Serve until a signal asks the broker to stop (True) or the data plane has ended by itself (False)."""
        import select

        does = {signals.RELOAD: self._reload, signals.SAVE: self.saver.save, signals.PRINT_TREES: self._print_trees,
                signals.REOPEN_LOG: self.log.reopen, signals.UPGRADE: self._upgrade_begin}
        self.poll = poll = select.poll()
        poll.register(self.engine.event_fd(), select.POLLIN)
        poll.register(self.signals.read_fd, select.POLLIN)
        if self.worker is None:
            poll.register(self.reload_fd, select.POLLIN)
        else:
            poll.register(self.worker.channel.fileno(), select.POLLIN)
        self._tick_s = time.monotonic() + TICK_S
        while not self.loop.ended:
            readable = [fd for fd, _ in poll.poll(self._wait_ms())]
            taken = self.signals.taken()        # read first: a wake-up after this is served in the next turn
            if self.bridges is not None:
                self.bridges.admit_clients()    # before a reload holds them again
            if self.reload_fd in readable:
                self.engine.hold_connects(True)         # before the kernel forgets the signal
                os.read(self.reload_fd, SIGNALS_BYTES)
                taken += bytes([signals.RELOAD])
            self._work()
            upgrade = self.upgrade
            if self.unkept is not None:
                at_once = signals.SAVE in taken or signals.RELOAD in taken
                if self.unkept.look(time.monotonic(), self.engine, at_once):
                    self.config.without_store, self.unkept = "", None
                    self._feed()
            if self.worker is not None and not self.worker.serve(self):
                return True
            for number in taken:
                if number in signals.STOP:
                    return True
                if number == signals.REOPEN_LOG and self.upgrade is not None:
                    self.for_successor.append(number)       # it may have opened the log before
                if number in does:
                    does[number]()
                if self.status:
                    return True
            # after the signals, which may end it: the process that takes over would not get them
            if upgrade is not None and upgrade is self.upgrade and self._upgrade_over(readable):
                return True
        return False

    def _work(self) -> None:
        """Do what is due: log lines, requests, files, ticks, the watchdog."""
        from mosq.server.serving import tick

        self._drain()
        self._serve_requests()
        self.saver.serve()
        if self.access is not None and time.monotonic() >= self._tick_s:
            tick(self.access, self.log.report)
            self._tick_s = time.monotonic() + TICK_S
        self._beat()

    def _beat(self) -> None:
        """Send the watchdog's ping if the loop has answered."""
        if self.alive:
            from mosq.server import systemd

            self.alive = False
            systemd.notify("WATCHDOG=1")

    def _serve_until(self, done: "Event", name: str) -> None:
        """Wait at a reload until a plugin is initialized. If that lasts, serve under the configuration in force.
        SIGTERM and SIGINT raise Stopped."""
        import select

        if done.wait(INITIALIZED_WITHIN_S):
            return
        self.log.report(WARNING, f"Warning: The initialization of plugin {name} lasts. Clients are served under the "
                                 "old configuration until it ends.")
        self.engine.hold_connects(False)
        poll = select.poll()
        poll.register(self.engine.event_fd(), select.POLLIN)
        while not done.is_set():
            if self.loop.ended:
                raise RuntimeError("the data plane has ended")
            poll.poll(INITIALIZED_LOOK_MS)
            self.signals.reading.pause(self._work)

    def _loop_answered(self) -> None:
        self.alive = True
        self.signals.wake()

    def _drain(self) -> None:
        self.log.write(self.engine.drain())

    def _wait_ms(self) -> float | None:
        """Return the milliseconds until work is due that comes without a wake-up; None if there is none."""
        waits = [] if self.access is None else [max(0.0, self._tick_s - time.monotonic())]
        due_s = None if self.bridges is None else self.bridges.due_in_s()
        if due_s is not None:
            waits.append(due_s)
        if self.unkept is not None:
            waits.append(self.unkept.due_in_s(time.monotonic()))
        if self.upgrade is not None:
            waits.append(max(0.0, self.upgrade.due_s - time.monotonic()))
        save_s = self.saver.due_in_s()
        if save_s is not None:
            waits.append(max(0.0, save_s))
        return 1000 * min(waits) if waits else None

    def _serve_requests(self) -> None:
        from mosq.server.serving import hand_out

        requests = self.engine.requests()
        while self.access is not None and self.http_requests:
            requests.append(self.http_requests.popleft())
        hand_out(requests, self.engine, self.log.report, self.bridges, self.topics, self.access)

    def _request_access(self, request: "Request") -> None:
        assert self.http_requests is not None
        self.http_requests.append(request)  # called by the thread of the HTTP API
        self.signals.wake()

    def answer(self, answers: "list[Answer]") -> None:
        """Pass the answers of Access on; any thread may call this. Handles below 0 belong to the HTTP API, the others
        to the data plane."""
        ours = [answer for answer in answers if answer.handle < 0]
        if ours:
            gate = self.http.gate if self.http is not None else None
            for one in ours:
                if gate is not None:
                    gate.answered(one)
            answers = [answer for answer in answers if answer.handle >= 0]
        if answers:
            self.engine.answer(answers)

    def _publish_log(self) -> None:
        if self.log.topic is not None:
            self.log.topic.publish = self._publish

    def _publish(self, topic: str, payload: bytes) -> None:
        from mosq.records import PublishCommand

        # links carry a line to the other workers, but for the last one, which each worker has
        self.engine.answer([PublishCommand(topic, payload, qos=2, here=self.stopping)])

    # ---- upgrade

    def _upgrade_begin(self) -> None:
        from mosq.server.upgrade.leaving import Upgrade, failed, refuse_second, refuse_workers

        if self.worker is not None:
            refuse_workers(self.log.report)
            return
        if self.upgrade is not None:
            refuse_second(self.log.report)
            return
        self.log.flush()
        self.for_successor.clear()
        try:
            self.upgrade = Upgrade(self.engine, self.log.report, signals.TAKEN, self._serve_requests, self._beat,
                                   None if self.config.without_store else self.store)
        except OSError as error:
            failed(self.log.report, text_of(error))
            return
        self.poll.register(self.upgrade.fd, UPGRADE_EVENTS)

    def _upgrade_over(self, readable: list[int]) -> bool:
        """Hand over if the new program has reported something. Return True if it has taken over."""
        from mosq.server import systemd
        from mosq.server.upgrade.leaving import UpgradeError, failed

        upgrade = self.upgrade
        assert upgrade is not None
        if upgrade.fd not in readable and time.monotonic() < upgrade.due_s:
            return False
        self.poll.unregister(upgrade.fd)
        self.upgrade = None
        try:
            upgrade.serve()
        except UpgradeError as error:
            self._print(STDERR_FD, error.written)
            failed(self.log.report, str(error))
            return False
        systemd.notify(f"MAINPID={upgrade.pid}")
        self.pid_file = None            # it is the new process's
        self.left = upgrade.pid
        return True

    def _upgrade_cancel(self, why: str, goes_on: bool = True) -> None:
        from mosq.server.upgrade.leaving import failed

        if self.upgrade is not None:
            self.poll.unregister(self.upgrade.fd)
            self.upgrade.cancel()
            self.upgrade = None
            failed(self.log.report, why, goes_on)

    # ---- signals

    def _reload(self) -> None:
        from mosq.server import systemd
        from mosq.server.reload import reload

        self._upgrade_cancel("the configuration is read again")
        systemd.reloading()
        try:
            self.status = reload(self)
        finally:
            self.engine.hold_connects(False)
        self.reloaded()
        systemd.notify("READY=1")

    def reloaded(self) -> None:
        """Let the other parts notice the configuration in force, after a reload."""
        self.saver.config = self.config
        self._publish_log()
        self._feed()

    def _print(self, fd: int, block: bytes) -> None:
        """Write to standard output or standard error, without waiting for its reader."""
        from mosq.log.destinations import Stream

        if block:
            self.printers.setdefault(fd, Stream(fd)).put(block, block.count(b"\n"))

    def _print_trees(self) -> None:
        from mosq.server.tree import tree_lines

        try:
            listing = self.engine.subscriptions()
        except RuntimeError:
            return
        label = f"Worker {self.config.worker}:\n" if self.worker is not None else ""    # their blocks mix
        for block in tree_lines(listing.rows, listing.left_out):
            self._print(STDOUT_FD, (label + block).encode("utf-8", "backslashreplace"))

    # ---- stop

    def _leave(self) -> int:
        """End the process: another one has the clients, the store and the pid file."""
        for http in (self.http, self.earlier_http):
            if http is not None:
                http.stop()
        if self.access is not None:
            self.access.close()
        self.loop.join(STOP_WITHIN_S)
        self._drain()
        signals.block_all()             # from here on `signals.blocked` finds them
        self._pass_on(self.for_successor)
        self.log.flush()
        self._pass_on([])
        os._exit(EXIT_OK)               # without the work of freeing the state

    def _pass_on(self, numbers: list[int]) -> None:
        """Send the process that has taken over the signals that came too late for this one."""
        for number in (*numbers, *self.signals.taken(), *signals.blocked()):
            if number != signals.UPGRADE:
                os.kill(self.left, number)

    def _stop(self, by_signal: bool) -> int:
        loop, log = self.loop, self.log
        last = f"mosq version {VERSION} terminating"
        self.stopping = True
        if by_signal:
            log.publish(INFORMATION, last)      # while the data plane can still publish it
            give_up = time.monotonic() + STOP_WITHIN_S
            while loop.is_alive() and time.monotonic() < give_up:
                self.engine.stop()              # repeated, because a loop that has not begun ignores it
                loop.join(STOP_AGAIN_S)
        if self.bridges is not None:
            self.bridges.close_all()
        if self.feeder is not None:
            self.feeder.finish()
        if self.access is not None:
            self.access.close()
        self._drain()
        if not by_signal:
            log.report(ERROR, f"Error: The data plane ended by itself: {loop.failure!r}.")
            return EXIT_CANNOT_START
        if self.worker is None:
            log.report(INFORMATION, last)
        if loop.is_alive():
            log.report(ERROR, "Error: The data plane did not stop in time.")
        else:
            self.saver.finish()
            self._end_feeding()
        return self.status


def report_start(log: Log, config: Config) -> None:
    """Report the start of a broker, and what its configuration is."""
    log.report(INFORMATION, f"mosq version {VERSION} starting")
    log.report(INFORMATION, f"Config loaded from {config.file}." if config.file else "Using default config.")
    for name, there in FEATURES:
        log.report(INFORMATION, f"{name} support {'' if there else 'NOT '}available.")
    report_remarks(log, config)
    for line in compact_lines(config):
        log.report(WARNING, line)
    if config.local_only:
        log.report(WARNING, "Starting in local only mode. Connections will only be possible from clients running on "
                            "this machine.")
        log.report(WARNING, "Create a configuration file which defines a listener to allow remote access.")
        log.report(WARNING, "For more details see https://mosquitto.org/documentation/authentication-methods/")


def report_user(log: Log, user: process.Account | None) -> None:
    """Report as which user the broker runs."""
    if user is not None and user.instead_of:
        log.report(WARNING, f"Warning: Unable to drop privileges to '{user.instead_of}' because this user does not "
                            f"exist. Trying '{user.name}' instead.")
    log.report(INFORMATION, f"Info: running mosq as user: {process.running_as(user)}.")
    if os.geteuid() == 0 or os.getegid() == 0:
        log.report(WARNING, "Warning: Mosquitto should not be run as root/administrator.")


def report_remarks(log: Log, config: Config) -> None:
    """Report what the reader of the configuration has noticed."""
    for type_bit, text in config.notices:
        log.report(type_bit, text)
    for warning in config.warnings:
        log.report(WARNING, f"Warning: {warning}")
    for bridge in config.bridges:
        if bridge.bridge_capath and not os.path.isdir(bridge.bridge_capath):
            log.report(WARNING, f"Warning: bridge_capath {bridge.bridge_capath} is no folder: until it is one, the "
                                f"bridge {bridge.name} trusts none of its authorities.")
