"""SIGHUP: reads the configuration again and replaces the old one, completely or not at all.

  read -> check access -> open log files -> data plane (all or nothing, between two turns) -> log

While files are read, SIGTERM and SIGINT end the reload. If a step fails, one line at level error says why, and the old
state stays in force. With `compat` a bad acl_file or password_file ends the broker with status 3, as in Mosquitto.
"""

import os
import threading

from mosq.config.change import changes
from mosq.config.errors import ConfigError
from mosq.config.options import RESTART
from mosq.log_types import ERROR, INFORMATION, WARNING
from mosq.server.opening import compact_lines, opening_lines, reachable
from mosq.server.settings import engine_listeners
from mosq.server.signals import Stopped, block_all, unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.config.model import Config, Listener
    from mosq.engine import Security
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
        with control.signals.reading:
            config = reachable(load())
        config.without_store = control.config.without_store
    except Stopped:
        return 0                    # the main thread stops the broker next
    except Exception as error:
        return _refused(control.log, error)
    try:
        with control.signals.reading:
            access, securities = control.access_of(config)
    except Stopped:
        return 0
    except ConfigError as error:
        return _refused(control.log, error, EXIT_CONFIG if control.config.compat else 0)
    except Exception as error:
        return _refused(control.log, error)
    try:
        _take(control, config, access, securities)
    except Exception as error:      # after any error the old state is still in force
        if access is not None and access is not control.access:
            access.close()
        return _refused(control.log, error)
    return 0


def _take(control: "Control", config: "Config", access: "Access | None", securities: "list[Security]") -> None:
    log, old, old_access, old_topics = control.log, control.config, control.access, control.topics
    restart_options = dict.fromkeys(change.option for change in changes(old, config) if change.reload == RESTART)
    files = log.prepare(config)
    http_listeners: list[HttpListener] = []
    try:
        topics = control.topics_of(config, access)
        http_listeners = control.open_http_listeners(config)
        if http_listeners:
            import mosq.server.http.server  # the module may be missing or unreadable for this user
            if any(one.config.http_dashboard for one in http_listeners):
                import mosq.log.recent
                import mosq.server.http.dashboard.api  # noqa: F401 - the same
        control.engine.reload(control.settings(config, topics), engine_listeners(config), securities,
                              *control.bridge_specs(config))
    except BaseException:
        for fd in files.values():
            os.close(fd)
        for one in http_listeners:
            one.close()
        raise
    # from here on no step fails
    log.change(config, control.mask(config), files)
    control.config, control.access, control.securities, control.topics = config, access, securities, topics
    topics.take_over(old_topics)
    if old_access is not None:
        if access is not None:
            _end_revoked(control, access.revoked(old_access))
        old_access.close()
    if control.earlier_http is not None:
        control.earlier_http.stop()
    if control.http is not None:
        control.http.retire()
    control.earlier_http, control.http, control.http_listeners = control.http, None, http_listeners
    control.start_http()
    control.start_bridges()
    for type_bit, text in config.notices:
        log.report(type_bit, text)
    for warning in config.warnings:
        log.report(WARNING, f"Warning: {warning}")
    control.report_patterns(securities)
    for line in compact_lines(config):
        log.report(WARNING, line)
    for listener in config.listeners:
        if _address(listener) not in {_address(one) for one in old.listeners}:
            for line in opening_lines(listener):
                log.report(INFORMATION, line)
    for name in restart_options:
        log.report(WARNING, f"Warning: '{name}' has changed; the change takes effect at the next start.")


def _end_revoked(control: "Control", users: set[str]) -> None:
    """Disconnect the clients whose password is no longer valid. They must log in again, as in Mosquitto."""
    if users:
        for client in control.engine.clients():
            if client["username"] in users:
                control.engine.kick(str(client["id"]))


def _address(listener: "Listener") -> tuple[object, ...]:
    return (listener.port, listener.host, listener.path, listener.socket_domain, listener.bind_interface,
            listener.protocol, listener.enable_proxy_protocol)


def _refused(log: "Log", error: Exception, status: int = 0) -> int:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or type(error).__name__
    text = " ".join(text.removeprefix("Error: ").split("\n"))
    then = "and the broker ends (compat)" if status else "the old one stays in force"
    log.reopen()                        # the signal may be that of logrotate
    log.report(ERROR, f"Error: The configuration was not reloaded, {then}: {text}")
    return status
