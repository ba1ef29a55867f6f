"""Compares two configurations and reports what a SIGHUP does with each difference. Opens and changes nothing.

Passwords, keys and plugin options are never shown: their changes are reported without values.
"""

from mosq.config.bridge import Bridge
from mosq.config.model import Config, Listener
from mosq.config.options import (
    BRIDGE,
    BY_KEYWORD,
    GLOBAL,
    LISTENER_RESTART,
    LIVE,
    OF_LISTENERS,
    OPTIONS,
    SECURITY,
    Option,
)
from mosq.config.plugin import Plugin

WHOLE = "global"
SECRET = "(not shown)"
SECRETS = ("remote_password", "local_password", "bridge_psk", "tls_engine_kpass_sha1", "cluster")
NO_ATTRIBUTE = ("listener", "port", "bind_address", "plugin", "global_plugin", "plugin_load", "plugin_use",
                "include_dir", "connection", "auth_plugin_deny_special_chars", "plugin_thread")
_BRIDGE_LINES = {"address": "addresses", "topic": "topics", "bridge_tcp_keepalive": "tcp_keepalive_s"}


class Change:
    """One difference. `old` and `new` are written as in a file; None: the option or block did not exist."""

    __slots__ = ("option", "scope", "old", "new", "reload")

    def __init__(self, option: str, scope: str, old: str | None, new: str | None, reload: str) -> None:
        self.option, self.scope, self.old, self.new, self.reload = option, scope, old, new, reload

    def __str__(self) -> str:
        if self.option in ("listener", "connection"):
            return f"{self.scope} is {'new' if self.old is None else 'gone'}"
        where = "" if self.scope == WHOLE else f" of the {self.scope}"
        if self.old is None:
            return f"{self.option}{where} is new: {self.new}"
        if self.new is None:
            return f"{self.option}{where} is gone; it was {self.old}"
        return f"{self.option}{where}: {self.old} -> {self.new}"


def changes(old: Config, new: Config) -> list[Change]:
    """Return the differences in the order of the option table; those of listeners, plugins and bridges follow."""
    found = [change for option in OPTIONS if option.scope in (GLOBAL, SECURITY)
             for change in _of_option(option, WHOLE, old, new)]
    found += _plugins(WHOLE, old.plugins, new.plugins)
    found += _of_listeners(old, new)
    found += _of_bridges(old.bridges, new.bridges)
    return found


def written(option: Option, value: object) -> str:
    """Return the value as a configuration file would contain it. Secrets are replaced by SECRET."""
    if option.name in SECRETS:
        return SECRET
    if value is None or value == ():
        return "(default)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    if option.kind == "duration":
        return "never" if value == -1 else f"{value}s"
    return str(value)


def _of_option(option: Option, scope: str, old: object, new: object) -> list[Change]:
    if option.name in NO_ATTRIBUTE or not hasattr(new, option.name):
        return []
    before, after = getattr(old, option.name), getattr(new, option.name)
    if before == after:
        return []
    return [Change(option.name, scope, written(option, before), written(option, after), option.reload)]


def listener_key(listener: Listener) -> tuple[object, ...]:
    """Return the key by which two listeners are the same, as in the data plane."""
    if listener.path is not None:
        return (listener.path,)
    return listener.port, listener.host or "", listener.socket_domain, listener.bind_interface or ""


def _of_listeners(old: Config, new: Config) -> list[Change]:
    found = []
    before = {listener_key(listener): listener for listener in old.listeners}
    after = {listener_key(listener): listener for listener in new.listeners}
    for key, listener in before.items():
        if key not in after:
            found.append(Change("listener", f"listener {listener.where}", listener.where, None, LISTENER_RESTART))
    for key, listener in after.items():
        scope = f"listener {listener.where}"
        if key not in before:
            found.append(Change("listener", scope, None, listener.where, LIVE))
        else:
            found += _of_listener(scope, old, before[key], new, listener)
    return found


def _of_listener(scope: str, old: Config, before: Listener, new: Config, after: Listener) -> list[Change]:
    found = [change for option in OPTIONS if option.scope in OF_LISTENERS
             for change in _of_option(option, scope, before, after)]
    for option in OPTIONS:
        # With per_listener_settings in one of the two, compare the values that apply to this listener.
        if (option.scope == SECURITY and option.name not in NO_ATTRIBUTE
                and (old.per_listener_settings or new.per_listener_settings)):
            one, other = old.security_of(before, option.name), new.security_of(after, option.name)
            if one != other:
                found.append(Change(option.name, scope, written(option, one), written(option, other), option.reload))
    # implied values: local only mode began or ended
    if (old.allows_anonymous(before) != new.allows_anonymous(after)
            and not {"allow_anonymous", "listener_allow_anonymous"} & {change.option for change in found}
            and old.allow_anonymous == new.allow_anonymous):
        found.append(Change("allow_anonymous", scope, str(old.allows_anonymous(before)).lower(),
                            str(new.allows_anonymous(after)).lower(), BY_KEYWORD["allow_anonymous"].reload))
    return found + _plugins(scope, before.plugins, after.plugins)


def _plugins(scope: str, old: list[Plugin], new: list[Plugin]) -> list[Change]:
    before = {(plugin.path, plugin.name): plugin for plugin in old}
    threads = [(before.get((plugin.path, plugin.name), plugin), plugin) for plugin in new]
    return [Change("plugin_thread", f"plugin {was.path}", was.thread, now.thread, BY_KEYWORD["plugin_thread"].reload)
            for was, now in threads if was.thread != now.thread] + _lines(scope, old, new)


def _lines(scope: str, old: list[Plugin], new: list[Plugin]) -> list[Change]:
    if [plugin.key() for plugin in old] == [plugin.key() for plugin in new]:
        return []
    paths = [", ".join(plugin.path for plugin in plugins) or None for plugins in (old, new)]
    if paths[0] == paths[1]:
        return [Change("plugin_opt_*", scope, SECRET, SECRET, BY_KEYWORD["plugin_opt_"].reload)]
    return [Change("plugin", scope, paths[0], paths[1], BY_KEYWORD["plugin"].reload)]


def _of_bridges(old: list[Bridge], new: list[Bridge]) -> list[Change]:
    found: list[Change] = []
    before, after = {bridge.name: bridge for bridge in old}, {bridge.name: bridge for bridge in new}
    found += [Change("connection", f"bridge {name}", name, None, LIVE) for name in before if name not in after]
    for name, bridge in after.items():
        scope = f"bridge {name}"
        if name not in before:
            found.append(Change("connection", scope, None, name, LIVE))
        elif bridge.key() != before[name].key():
            found += [change for option in OPTIONS if option.scope == BRIDGE
                      for change in _of_bridge_option(option, scope, before[name], bridge)]
    return found


def _of_bridge_option(option: Option, scope: str, old: Bridge, new: Bridge) -> list[Change]:
    if option.name not in _BRIDGE_LINES and option.name != "restart_timeout":
        return _of_option(option, scope, old, new)
    before, after = bridge_lines(option.name, old), bridge_lines(option.name, new)
    return [] if before == after else [Change(option.name, scope, before, after, option.reload)]


def bridge_lines(name: str, bridge: Bridge) -> str:
    """Return the value of a bridge option that has its own format."""
    if name == "address":
        return " ".join(f"{host}:{port}" for host, port in bridge.addresses)
    if name == "topic":
        return "; ".join(" ".join((topic.pattern or '""', topic.direction, str(topic.qos), topic.local_prefix or '""',
                                   topic.remote_prefix or '""')) for topic in bridge.topics)
    if name == "restart_timeout":
        return f"{bridge.restart_base_s} {bridge.restart_cap_s} {bridge.restart_stable_s}"
    return " ".join(map(str, bridge.tcp_keepalive_s or ())) or "(default)"
