"""The control plane's main thread: starts the data plane in a thread of its own, then waits for signals and for what
the data plane has to say. No message passes through here; what blocks here (a slow log) delays no client.

    start -> open (bind) -> pid file -> drop rights -> run ... SIGTERM or SIGINT -> stop -> last log lines -> exit 0
"""

import os
import select
import signal
import threading
import time

from mosq import __version__, process
from mosq.config.errors import ConfigError
from mosq.config.model import Config, Listener
from mosq.config.options import LOG_TYPES
from mosq.engine import new_engine
from mosq.log import Log
from mosq.settings import engine_listeners, engine_securities, engine_settings, log_mask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.engine import Engine, Security, SettingValue

EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_CONFIG = 3

ERROR, WARNING, NOTICE, INFORMATION = (LOG_TYPES[name] for name in ("error", "warning", "notice", "information"))

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# what they do in Mosquitto is a later work; what the system would do is end the process
LATER_SIGNALS = {signal.SIGHUP: "SIGHUP (reload)", signal.SIGUSR1: "SIGUSR1 (save)",
                 signal.SIGUSR2: "SIGUSR2 (print the trees)",
                 signal.SIGRTMIN: "SIGRTMIN (reopen the log)"}
STOP_AGAIN_S = 0.05
STOP_WITHIN_S = 0.8             # of the second that stopping may take

IPV6_ADDRESSES = "/proc/net/if_inet6"
IPV6_LOOPBACK = "0" * 31 + "1"


def serve(config: Config, *, quiet: bool = False, verbose: bool = False, background: bool = False,
          make_engine: "Callable[..., Engine]" = new_engine) -> int:
    """Runs a broker until it is told to stop; returns the exit status of the process."""
    mask = log_mask(config, quiet, verbose)
    log = Log(config.log_dest, mask, config.log_timestamp, config.log_timestamp_format)
    try:
        securities = engine_securities(config)
    except ConfigError as error:
        return _fail(str(error), EXIT_CONFIG)
    in_background = process.Background() if background else None
    process.room_for_descriptors()
    with _Signals() as signals:
        _say_start(log, config)
        try:
            engine = _open(config, mask, securities, log, make_engine)
        except ValueError as error:
            return _fail(f"Error: {error}", EXIT_CONFIG)
        except ImportError as error:
            return _fail(f"Error: {error}: the compiled package is not there; in a checkout, `make build` makes it",
                         EXIT_CANNOT_START)
        except OSError as error:
            return _fail(f"Error: {error.strerror or error}", EXIT_CANNOT_START)
        try:
            _settle(config, log)
        except (OSError, LookupError) as error:
            return _fail(f"Error: {error}", EXIT_CANNOT_START)
        try:
            return _run(engine, log, signals, in_background)
        finally:
            if config.pid_file is not None:
                process.remove_pid_file(config.pid_file)


def _fail(text: str, status: int) -> int:
    # not through the log, which may be switched off: who starts a broker wants to know why there is none
    os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    return status


def _say_start(log: Log, config: Config) -> None:
    log.say(INFORMATION, f"mosq version {__version__} starting")
    log.say(INFORMATION, f"Config loaded from {config.file}." if config.file else "Using default config.")
    for warning in config.warnings:
        log.say(WARNING, f"Warning: {warning}")
    if config.local_only:
        log.say(WARNING, "Starting in local only mode. Connections will only be possible from clients running on "
                         "this machine.")
        log.say(WARNING, "Create a configuration file which defines a listener to allow remote access.")


def _open(config: Config, mask: int, securities: "list[Security]", log: Log,
          make_engine: "Callable[..., Engine]") -> "Engine":
    if config.local_only and not _has_ipv6_loopback():
        config.listeners = [listener for listener in config.listeners if listener.host != "::1"]
    listeners: list[dict[str, SettingValue]] = engine_listeners(config)
    engine = make_engine(engine_settings(config, mask), listeners, securities)
    for listener in config.listeners:
        for line in _opening(listener):
            log.say(INFORMATION, line)
    engine.open()
    return engine


def _opening(listener: Listener) -> list[str]:
    if listener.path is not None:
        return [f"Opening unix listen socket on path {listener.path}."]
    families = [listener.socket_domain] if listener.socket_domain else ["ipv4", "ipv6"]
    if listener.host is not None:
        # a name may stand for both; which it is, the system knows when it binds
        numeric = "ipv6" if ":" in listener.host else "ipv4" if listener.host.replace(".", "").isdigit() else None
        families = [numeric] if numeric else families[:1]
    elif not os.path.exists(IPV6_ADDRESSES):
        families = [family for family in families if family != "ipv6"]
    return [f"Opening {family} listen socket on port {listener.port}." for family in families]


def _has_ipv6_loopback() -> bool:
    try:
        with open(IPV6_ADDRESSES) as file:
            return any(line.startswith(IPV6_LOOPBACK) for line in file)
    except OSError:
        return False


def _settle(config: Config, log: Log) -> None:
    if config.pid_file is not None:
        try:
            process.write_pid_file(config.pid_file)
        except OSError as error:
            raise OSError(f"Unable to write pid file {config.pid_file}: {error.strerror}") from None
    # the files of unix sockets let their owner and group in: as in Mosquitto that is who the broker runs as
    user = process.become(config.user, [x.path for x in config.listeners if x.path is not None])
    if user is not None and user != config.user:
        log.say(WARNING, f"Warning: There is no user '{config.user}'; running as '{user}'.")


class _Signals:
    """Turns signals into bytes on a descriptor that the main thread waits for."""

    def __enter__(self) -> "_Signals":
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self.write_fd, False)
        self.old_wakeup_fd = signal.set_wakeup_fd(self.write_fd, warn_on_full_buffer=False)
        self.old = {number: signal.signal(number, lambda number, frame: None) for number in (*STOP_SIGNALS,
                                                                                             *LATER_SIGNALS)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.old_wakeup_fd)
        os.close(self.read_fd)
        os.close(self.write_fd)

    def wake(self) -> None:
        """From any thread: makes `read_fd` readable without a signal."""
        os.write(self.write_fd, b"\0")

    def taken(self) -> bytes:
        """The numbers of the signals that came, a byte each."""
        try:
            return os.read(self.read_fd, 4096)
        except BlockingIOError:
            return b""


class _DataPlane(threading.Thread):
    """The thread of the loop. Signals are the main thread's: they must not interrupt it."""

    def __init__(self, engine: "Engine", signals: _Signals) -> None:
        super().__init__(name="mosq-loop", daemon=True)
        self.engine, self.signals = engine, signals
        self.ended = False              # set before the wake; is_alive() would still be true for a moment after it
        self.failure: BaseException | None = None

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, *LATER_SIGNALS))
        try:
            self.engine.run()
        except BaseException as failure:     # told by the main thread, which ends the process
            self.failure = failure
        self.ended = True
        self.signals.wake()


def _run(engine: "Engine", log: Log, signals: _Signals, in_background: process.Background | None) -> int:
    loop = _DataPlane(engine, signals)
    loop.start()
    log.say(INFORMATION, f"mosq version {__version__} running")
    if in_background is not None:
        in_background.ready()
    poll = select.poll()
    poll.register(engine.event_fd(), select.POLLIN)
    poll.register(signals.read_fd, select.POLLIN)
    stopping = False
    while not stopping and not loop.ended:
        poll.poll()
        _drain(engine, log)
        for number in signals.taken():
            if number in STOP_SIGNALS:
                stopping = True
            elif number in LATER_SIGNALS:
                log.say(WARNING, f"Warning: {LATER_SIGNALS[signal.Signals(number)]} has no effect in this version "
                                 f"of mosq.")
    return _stop(engine, loop, log, stopping)


def _drain(engine: "Engine", log: Log) -> None:
    log.write([(seconds, type_bit, text) for kind, seconds, type_bit, text in engine.drain() if kind == "log"])


def _stop(engine: "Engine", loop: _DataPlane, log: Log, asked: bool) -> int:
    if asked:
        give_up = time.monotonic() + STOP_WITHIN_S
        while loop.is_alive() and time.monotonic() < give_up:
            engine.stop()               # again, for it says nothing to a loop that has not begun yet
            loop.join(STOP_AGAIN_S)
    _drain(engine, log)
    if not asked:
        log.say(ERROR, f"Error: The data plane ended by itself: {loop.failure!r}.")
        return EXIT_CANNOT_START
    log.say(INFORMATION, f"mosq version {__version__} terminating")
    if loop.is_alive():
        log.say(ERROR, "Error: The data plane did not stop in time.")
    return EXIT_OK
