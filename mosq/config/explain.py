"""Reports the source of each value of a configuration: a line of a file, the default, or another option that implies
it."""

from mosq.config.bridge import Bridge
from mosq.config.change import NO_ATTRIBUTE, SECRET, bridge_lines, written
from mosq.config.errors import Origin
from mosq.config.model import Config, Listener
from mosq.config.options import BRIDGE, GLOBAL, OF_LISTENERS, OPTIONS, SECURITY, Option, find_option
from mosq.config.plugin import NATIVE, Plugin

WHOLE = "the broker"
DEFAULT = "default"


class Explanation:
    """The value of an option, its scope and its source."""

    __slots__ = ("option", "scope", "value", "source", "is_default")

    def __init__(self, option: str, scope: str, value: str, source: str, is_default: bool = False) -> None:
        self.option, self.scope, self.value, self.source, self.is_default = option, scope, value, source, is_default


def explain(config: Config, keyword: str | None = None) -> list[Explanation]:
    """Return all options or one: first the broker's in the order of the option table, then each listener's, then each
    bridge's."""
    option = None if keyword is None else find_option(keyword)
    found = _of_broker(config)
    for listener in config.listeners:
        found += _of_listener(config, listener)
    for bridge in config.bridges:
        found += _of_bridge(bridge)
    return [one for one in found if option is None or one.option == option.name]


def _of_broker(config: Config) -> list[Explanation]:
    found = []
    for option in OPTIONS:
        if option.scope not in (GLOBAL, SECURITY) or option.name in NO_ATTRIBUTE or not hasattr(config, option.name):
            continue
        if option.scope == SECURITY and config.per_listener_settings:
            continue
        value, origin = getattr(config, option.name), config.origins.get(option.name)
        if option.name == "allow_anonymous" and value is None:
            found.append(Explanation(option.name, WHOLE, str(config.local_only).lower(), _implied(config), True))
        else:
            found.append(_one(option, WHOLE, value, origin))
    return found + _plugins(WHOLE, config.plugins)


def _plugins(scope: str, plugins: list[Plugin]) -> list[Explanation]:
    found = []
    for plugin in plugins:
        found.append(Explanation("plugin", scope, plugin.path, str(plugin.origin)))
        if plugin.kind == NATIVE:
            origin = plugin.thread_origin
            found.append(Explanation("plugin_thread", f"plugin {plugin.path}", plugin.thread, str(origin or DEFAULT),
                                     origin is None))
    return found


def _implied(config: Config) -> str:
    return "implied: there is no listener, so only this machine can connect" if config.local_only else \
        "implied: there is a listener"


def _one(option: Option, scope: str, value: object, origin: Origin | None) -> Explanation:
    shown = written(option, value)
    return Explanation(option.name, scope, shown, DEFAULT if origin is None else str(origin), origin is None)


def _of_listener(config: Config, listener: Listener) -> list[Explanation]:
    scope = f"listener {listener.where}"
    made = "implied: local only mode" if listener.origin is None else str(listener.origin)
    found = [Explanation("listener", scope, listener.where, made)]
    for option in OPTIONS:
        if option.scope in OF_LISTENERS and option.name not in NO_ATTRIBUTE and hasattr(listener, option.name):
            found.append(_of_listener_option(config, listener, option, scope))
        elif option.scope == SECURITY and option.name not in NO_ATTRIBUTE and config.per_listener_settings:
            value, origin = config.security_of(listener, option.name), listener.origins.get(option.name)
            if option.name == "allow_anonymous" and value is None:
                found.append(Explanation(option.name, scope, str(config.local_only).lower(), _implied(config), True))
            else:
                found.append(_one(option, scope, value, origin))
    return found + _plugins(scope, listener.plugins)


def _of_listener_option(config: Config, listener: Listener, option: Option, scope: str) -> Explanation:
    value, origin = getattr(listener, option.name), listener.origins.get(option.name)
    if option.name == "listener_allow_anonymous" and value is None:
        return Explanation(option.name, scope, str(config.allows_anonymous(listener)).lower(),
                           "implied: allow_anonymous", True)
    if option.name == "listener_auto_id_prefix" and value is None:
        return Explanation(option.name, scope, config.auto_id_prefix_of(listener), "implied: auto_id_prefix", True)
    return _one(option, scope, value, origin)


def _of_bridge(bridge: Bridge) -> list[Explanation]:
    scope = f"bridge {bridge.name}"
    found = [Explanation("connection", scope, bridge.name, str(bridge.origin))]
    for option in OPTIONS:
        if option.scope != BRIDGE:
            continue
        origin = bridge.origins.get(option.name)
        value = bridge_lines(option.name, bridge) if option.kind == "special" else written(
            option, getattr(bridge, option.name))
        if value == SECRET and getattr(bridge, option.name) is None:
            value = "(default)"
        found.append(Explanation(option.name, scope, value, DEFAULT if origin is None else str(origin), origin is None))
    return found
