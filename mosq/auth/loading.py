"""From the plugins of a configuration to what they are here: a class in Python, or one of those that Mosquitto ships.

Knows names of modules and files; not what plugins do. A native plugin (any other .so) cannot be loaded: an error that
says what to use instead.
"""

import os
import sys

from mosq.config.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.auth.plugin import Plugin

PREFIX = "python:"
ENTRY_POINTS = "mosq.plugins"
PASSWORD_FILE, ACL_FILE, SPARKPLUG, PERSIST, DYNSEC = (
    "password_file", "acl_file", "sparkplug_aware", "persist_sqlite", "dynamic_security")
BUILT_IN = (PASSWORD_FILE, ACL_FILE, SPARKPLUG, PERSIST, DYNSEC)
EXPECTED = "`plugin python:MODULE:CLASS`, `plugin python:NAME`, or one of Mosquitto's own plugins"


def built_in(path: str) -> str | None:
    """Which of Mosquitto's plugins a path is: /usr/lib/mosquitto_acl_file.so and acl-file are the same."""
    stem = os.path.basename(path).removesuffix(".so").replace("-", "_").removeprefix("mosquitto_")
    return stem if stem in BUILT_IN else None


def option_of(plugin: "Any", name: str) -> str:
    """The one option that a built-in plugin has, and needs. Raises ConfigError."""
    values = dict(plugin.options)
    unknown = next((key for key in values if key != name), None)
    if unknown is not None:
        raise ConfigError(f"Unknown option 'plugin_opt_{unknown}' of plugin '{plugin.path}'; expected "
                          f"plugin_opt_{name}.", plugin.origin)
    if not values.get(name):
        raise ConfigError(f"Plugin '{plugin.path}' needs a line `plugin_opt_{name} FILE`.", plugin.origin)
    return str(values[name])


def make_plugin(plugin: "Any") -> "Plugin":
    """A new instance, from a plugin of the configuration. Raises ConfigError."""
    cls = _sparkplug() if built_in(plugin.path) == SPARKPLUG else plugin_class(plugin)
    try:
        return cls(dict(plugin.options))
    except ValueError as error:
        raise ConfigError(f"Plugin '{plugin.path}' refuses its options: {error}", plugin.origin) from None
    except ImportError as error:
        raise ConfigError(f"Plugin '{plugin.path}' needs a module that is not there: {error.name}.",
                          plugin.origin) from None
    except Exception as error:      # its text may show an option that is a secret
        raise ConfigError(f"Plugin '{plugin.path}' cannot be made: {type(error).__name__} in its constructor.",
                          plugin.origin) from None


def plugin_class(plugin: "Any") -> "type[Plugin]":
    """Raises ConfigError."""
    from mosq.auth.plugin import Plugin

    path, origin = plugin.path, plugin.origin
    if not path.startswith(PREFIX):
        raise ConfigError(f"Unable to load plugin '{path}': native plugins cannot be loaded; expected {EXPECTED}.",
                          origin)
    name = path.removeprefix(PREFIX).strip()
    found = _by_module(name, path, origin) if ":" in name else _by_entry_point(name, path, origin)
    if not isinstance(found, type) or not issubclass(found, Plugin):
        raise ConfigError(f"Unable to load plugin '{path}': it is no subclass of mosq.auth.plugin.Plugin.", origin)
    return found


def _by_module(name: str, path: str, origin: "Any") -> "Any":
    from importlib import import_module

    module_name, _, class_name = name.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        missing = f"there is no module '{error.name}'" if isinstance(error, ModuleNotFoundError) else "its import fails"
        raise ConfigError(f"Unable to load plugin '{path}': {missing}; expected it on Python's path "
                          f"({sys.executable}, PYTHONPATH).", origin) from None
    except Exception as error:
        raise ConfigError(f"Unable to load plugin '{path}': importing '{module_name}' raises "
                          f"{type(error).__name__}: {error}", origin) from None
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(f"Unable to load plugin '{path}': module '{module_name}' has no '{class_name}'.", origin)
    return found


def _by_entry_point(name: str, path: str, origin: "Any") -> "Any":
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINTS)
    point = next((point for point in points if point.name == name), None)
    if point is None:
        known = ", ".join(sorted(point.name for point in points)) or "none"
        raise ConfigError(f"Unable to load plugin '{path}': no entry point '{name}' of {ENTRY_POINTS}; there are: "
                          f"{known}. For a class write `plugin python:MODULE:CLASS`.", origin)
    try:
        return point.load()
    except Exception as error:
        raise ConfigError(f"Unable to load plugin '{path}': loading {point.value} raises {type(error).__name__}: "
                          f"{error}", origin) from None


def _sparkplug() -> "type[Plugin]":
    from mosq.auth.sparkplug import SparkplugAware

    return SparkplugAware
