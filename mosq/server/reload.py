"""SIGHUP: reads the configuration again and replaces the old one, completely or not at all.

  read -> check access -> open log files -> data plane (all or nothing, between two turns) -> log

While files are read, SIGTERM and SIGINT end the reload. If a step fails, one line at level error says why, and the old
state stays in force. With `compat` a bad acl_file or password_file ends the broker with status 3, as in Mosquitto.
"""

import os
import threading

from mosq.config.change import changes
from mosq.config.errors import ConfigError, text_of
from mosq.config.options import RESTART
from mosq.log_types import ERROR, INFORMATION, WARNING
from mosq.server.opening import compact_lines, opening_lines, reachable
from mosq.server.settings import engine_listeners
from mosq.server.signals import Stopped, block_all, unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config, Listener
    from mosq.engine import ListenerSpec, Security, SettingValue
    from mosq.log.log import Log
    from mosq.server.access import Access
    from mosq.server.control import Control
    from mosq.server.http.listeners import HttpListener


EXIT_CONFIG = 3                 # same as in mosq.server.control
HELD_S = 3.0                    # RELOAD_HOLD_MS of cext/broker/lifecycle/reload_hold.pyx


class Overdue:
    """`with Overdue(report):` logs a line if the reload lasts longer than new clients wait for it. The main thread may
    wait for a file then, so another thread logs it."""

    def __init__(self, report: "Callable[[int, str], None]") -> None:
        self._report = report
        self._timer = threading.Timer(HELD_S, self._over)
        self._timer.daemon = True

    def __enter__(self) -> None:
        before = block_all()            # the new thread inherits the mask: signals must interrupt the main thread
        try:
            self._timer.start()
        except RuntimeError:            # no more threads; the reload goes on without the line
            pass
        finally:
            unblock(before)

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()

    def _over(self) -> None:
        self._report(WARNING, f"Warning: The reload has not ended after {HELD_S:.0f} seconds; perhaps a file cannot be "
                              "read to its end. New clients connect under the old configuration until it ends.")


def reload(control: "Control") -> int:
    """Apply the configuration; return the exit status to end with, or 0 to go on."""
    control.log.report(INFORMATION, "Reloading config.")
    if control.load is None:
        control.log.reopen()
        return 0
    with Overdue(control.log.report):
        return _reload(control, control.load)


def _reload(control: "Control", load: "Callable[[], Config]") -> int:
    try:
        reading = Prepared(control, load)
    except Stopped:
        return 0                    # the main thread stops the broker next
    except RefusedError as refused:
        return _refused(control.log, refused.error, refused.status)
    try:
        reading.apply()
    except Exception as error:
        return _refused(control.log, error)
    return 0


class RefusedError(Exception):
    """A configuration is not applied. `status`: the exit status to end with; 0: the old one stays in force."""

    def __init__(self, error: Exception, status: int = 0) -> None:
        super().__init__(reason_of(error))
        self.error, self.status = error, status


class Prepared:
    """A new configuration that was read and checked. Then either `apply` or `drop`."""

    def __init__(self, control: "Control", load: "Callable[[], Config]") -> None:
        """Read the files. Raises RefusedError, and Stopped if the broker shall stop."""
        self.control = control
        self._files: dict[str, int] = {}
        self._http_listeners: list[HttpListener] = []
        self._access: Access | None = None
        try:
            with control.signals.reading:
                self.config = reachable(load())
            self.config.without_store = control.config.without_store
        except Exception as error:
            raise RefusedError(error) from None
        try:
            with control.signals.reading:
                self._access, self._securities = control.access_of(self.config)
        except ConfigError as error:
            raise RefusedError(error, EXIT_CONFIG if control.config.compat else 0) from None
        except Exception as error:
            raise RefusedError(error) from None
        try:
            self._prepare()
        except Exception as error:
            self.drop()
            raise RefusedError(error) from None

    def _prepare(self) -> None:
        control, config = self.control, self.config
        self._files = control.log.prepare(config)
        self._topics = control.topics_of(config, self._access)
        self._http_listeners = control.open_http_listeners(config)
        if self._http_listeners:
            import mosq.server.http.server  # the module may be missing or unreadable for this user
            if any(one.config.http_dashboard for one in self._http_listeners):
                import mosq.log.recent
                import mosq.server.http.dashboard.api  # noqa: F401 - the same
        # a worker prepares all of it, because the others must not apply what this one then refuses
        self._renewal = None if control.worker is None else control.engine.prepare_reload(
            *self._arguments(), *control.bridge_specs(self.config))

    def _arguments(self) -> "tuple[dict[str, SettingValue], list[ListenerSpec], list[Security]]":
        return (self.control.settings(self.config, self._topics), engine_listeners(self.config), self._securities)

    def drop(self) -> None:
        """Forget it. The old configuration is still in force."""
        for fd in self._files.values():
            os.close(fd)
        for one in self._http_listeners:
            one.close()
        if self._access is not None and self._access is not self.control.access:
            self._access.close()
        self._files, self._http_listeners, self._access = {}, [], None

    def apply(self) -> None:
        """Put it into force. After an exception the old one is."""
        control = self.control
        try:
            if self._renewal is not None:
                self._renewal.commit()
            else:
                control.engine.reload(*self._arguments(), *control.bridge_specs(self.config))
        except BaseException:
            self.drop()
            raise
        # from here on no step fails
        old, old_access, old_topics = control.config, control.access, control.topics
        control.log.change(self.config, control.mask(self.config), self._files)
        control.config, control.access, control.securities = self.config, self._access, self._securities
        control.topics = self._topics
        control.topics.take_over(old_topics)
        if old_access is not None:
            if control.access is not None:
                _end_revoked(control, control.access.revoked(old_access))
            old_access.close()
        self._serve_http()
        control.start_bridges()
        self._report(old)

    def _serve_http(self) -> None:
        control = self.control
        if control.earlier_http is not None:
            control.earlier_http.stop()
        if control.http is not None:
            control.http.retire()
        control.earlier_http, control.http, control.http_listeners = control.http, None, self._http_listeners
        control.start_http()

    def _report(self, old: "Config") -> None:
        if self.control.worker is None:             # otherwise the parent reports it, once
            report_applied(self.control.log, old, self.config)
        self.control.report_patterns(self._securities)


def report_applied(log: "Log", old: "Config", config: "Config") -> None:
    """Report a new configuration that is in force."""
    for type_bit, text in config.notices:
        log.report(type_bit, text)
    for warning in config.warnings:
        log.report(WARNING, f"Warning: {warning}")
    for line in compact_lines(config):
        log.report(WARNING, line)
    for listener in config.listeners:
        if address_of(listener) not in {address_of(one) for one in old.listeners}:
            for line in opening_lines(listener):
                log.report(INFORMATION, line)
    for name in dict.fromkeys(change.option for change in changes(old, config) if change.reload == RESTART):
        log.report(WARNING, f"Warning: '{name}' has changed; the change takes effect at the next start.")


def _end_revoked(control: "Control", users: set[str]) -> None:
    """Disconnect the clients whose password is no longer valid. They must log in again, as in Mosquitto."""
    if users:
        for client in control.engine.clients():
            if client["username"] in users:
                control.engine.kick(str(client["id"]))


def address_of(listener: "Listener") -> tuple[object, ...]:
    """Return what makes two listeners of two configurations the same one."""
    return (listener.port, listener.host, listener.path, listener.socket_domain, listener.bind_interface,
            listener.protocol, listener.enable_proxy_protocol)


def reason_of(error: Exception) -> str:
    """Return why a configuration is not applied, on one line."""
    text = text_of(error) or type(error).__name__
    return " ".join(text.removeprefix("Error: ").split("\n"))


def _refused(log: "Log", error: Exception, status: int = 0) -> int:
    return refuse(log, reason_of(error), status)


def refuse(log: "Log", text: str, status: int) -> int:
    """Report that a configuration was not applied; return the status."""
    then = "and the broker ends (compat)" if status else "the old one stays in force"
    log.reopen()                        # the signal may be that of logrotate
    log.report(ERROR, f"Error: The configuration was not reloaded, {then}: {text}")
    return status
