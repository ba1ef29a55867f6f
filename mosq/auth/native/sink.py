"""Connects native plugins with the access control that has loaded them, and with the control topics."""

import ctypes

from mosq.auth.native import calls
from mosq.auth.native.host import host
from mosq.auth.native.plugin import NativePlugin
from mosq.config.errors import ConfigError
from mosq.log_types import WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.auth.plugins import Plugins
    from mosq.auth.pool import Pool
    from mosq.config.plugin import Plugin as Line


def load_native(access: "Any", line: "Line", pool: "Pool") -> NativePlugin:
    """Load a native plugin; `access` gets what it asks for. Raises ConfigError."""
    try:
        ours = host()
    except OSError as error:
        raise ConfigError(f"Unable to load plugin '{line.path}': the shim of native plugins cannot be loaded: {error}",
                          line.origin) from None
    ours.begin(access)
    log_file, location = access.places
    ours.shim.mosq_shim_watch_crashes(None if log_file is None else log_file.encode())
    ours.shim.mosq_shim_workers(int(access.is_worker))
    ours.shim.mosq_shim_location(None if location is None else location.encode())
    try:
        return NativePlugin(line, pool, access.wait)
    except ConfigError:
        ours.end()
        raise


def loop_of(plugins: "list[NativePlugin]", undecided: int, decides_logins: bool
            ) -> tuple[int, int, int, tuple[int, ...]]:
    """Return the addresses of a realm with these plugins, and of the functions that the data plane's loop calls, and
    the sizes of the structs that they expect. A realm is never freed: an earlier configuration may still be in
    use."""
    shim = host().shim
    return (_realm(plugins, undecided, decides_logins), calls.address_of(shim, "ask"), calls.address_of(shim, "access"),
            tuple(shim.mosq_shim_layout(i) for i in range(5)))


def watch_pauses(notes: bool, asks: bool) -> None:
    """Let plugins on the loop report each outcome of a login, and ask the control plane about a pause before each
    login."""
    host().shim.mosq_shim_pauses(2 if asks else int(notes))


def psk_of(plugins: "list[NativePlugin]") -> tuple[int, int]:
    """Return the same for pre-shared keys. A handshake calls the plugins in its own thread, one call at a time."""
    return _realm(plugins), calls.address_of(host().shim, "psk")


def _realm(plugins: "list[NativePlugin]", undecided: int = 0, decides_logins: bool = False) -> int:
    array = (ctypes.c_void_p * len(plugins))(*(plugin.address for plugin in plugins))
    return int(host().shim.mosq_shim_realm(array, len(plugins), undecided, decides_logins))


def answer_on(topics: "Any", plugins: "Plugins", report: "Callable[[int, str], None]") -> None:
    """Register the control topics of native plugins. Their answers are messages that they publish."""
    for plugin in plugins.natives():
        runner = plugins.runner_of(plugin)
        for topic in plugin.control_topics:
            def handler(requester: "Any", payload: bytes, topic: str = topic, runner: "Any" = runner) -> "list[Any]":
                if not runner.put(lambda: runner.plugin.control(requester, topic, payload)):
                    runner.failed("control", "too many of them wait")
                return []

            try:
                topics.add(topic, handler)
            except ValueError as error:
                report(WARNING, f"Warning: Plugin {plugin.shown}: {error}.")
