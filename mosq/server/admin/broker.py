"""`$CONTROL/broker/v1`: Mosquitto's own commands about a broker, listPlugins and listListeners, with its responses.

The commands that only mosq has are on their own topic (inspect.py): the right to list listeners then does not include
the right to disconnect clients, and a later Mosquitto can add commands here without a conflict with ours.
"""

from mosq.server.admin.commands import Commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mosq.config.model import Config, Listener
    from mosq.config.plugin import Plugin
    from mosq.server.admin.commands import Fields
    from mosq.server.admin.control import Requester

TOPIC = "$CONTROL/broker/v1"
DYNSEC_TOPIC = "$CONTROL/dynamic-security/v1"
PROTOCOLS = {"mqtt": "mqtt", "websockets": "mqtt+websockets"}      # no entry for http_api listeners, as in Mosquitto


def commands(config: "Config", topics: "Callable[[], Sequence[str]]", report: "Callable[[int, str], None]") -> Commands:
    """Return the handler. `topics`: the control topics that the broker answers."""

    def list_plugins(requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return {"plugins": _plugins(config, topics())}

    def list_listeners(requester: "Requester", fields: "Fields") -> "dict[str, Any]":
        return {"listeners": [_listener(one) for one in config.listeners]}

    return Commands("Broker", TOPIC, {"listPlugins": list_plugins, "listListeners": list_listeners}, report)


def _plugins(config: "Config", topics: "Sequence[str]") -> "list[dict[str, Any]]":
    seen: set[int] = set()
    found = []
    everywhere = [(plugin, None) for plugin in (*config.plugins, *config.named_plugins.values())]
    for plugin, port in (*everywhere, *((one, at.port) for at in config.listeners for one in at.plugins)):
        if id(plugin) not in seen:
            seen.add(id(plugin))
            found.append(_plugin(plugin, port, topics))
    return found


def _plugin(plugin: "Plugin", port: int | None, topics: "Sequence[str]") -> "dict[str, Any]":
    is_built_in = plugin.kind not in ("python", "native")
    data: dict[str, Any] = {"name": plugin.kind if is_built_in else plugin.shown or plugin.path.removeprefix("python:")}
    if port is not None:
        data["port"] = port
    ours = plugin.kind == "dynamic-security" and DYNSEC_TOPIC in topics
    return {**data, "control-endpoints": [DYNSEC_TOPIC] if ours else plugin.control_topics}


def _listener(listener: "Listener") -> "dict[str, Any]":
    data: dict[str, Any] = {"port": listener.port}
    if listener.protocol in PROTOCOLS:
        data["protocol"] = PROTOCOLS[listener.protocol]
    if listener.host is not None:
        data["bind-address"] = listener.host
    if listener.path is not None:
        data["socket-path"] = listener.path
    return {**data, "tls": listener.tls}
