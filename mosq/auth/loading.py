"""Makes the plugins of a configuration: Python classes, or those that Mosquitto ships.

Knows names of modules and files, not what plugins do. A native plugin (any other .so) cannot be loaded; the error names
the alternatives.
"""

import sys

from mosq.config.errors import ConfigError
from mosq.config.plugin import PYTHON_PREFIX, SPARKPLUG_AWARE, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.auth.plugin import Plugin
    from mosq.config.plugin import Plugin as Line

ENTRY_POINTS = "mosq.plugins"
EXTRAS = {"mosq.auth.jwt": "jwt", "mosq.auth.http": "http"}     # plugins that need optional packages


def option_of(line: "Line", name: str) -> str:
    """Return the one option that a built-in plugin has and needs. Raises ConfigError."""
    unknown = next((key for key, _ in line.options if key != name), None)
    if unknown is not None:
        raise ConfigError(f"Unknown option 'plugin_opt_{unknown}' of plugin '{line.path}'; expected "
                          f"plugin_opt_{name}.", line.origin)
    value = line.option(name)
    if not value:
        raise ConfigError(f"Plugin '{line.path}' needs a line `plugin_opt_{name} FILE`.", line.origin)
    return value


def make_plugin(line: "Line") -> "Plugin":
    """Return a new instance of a plugin of the configuration. Raises ConfigError."""
    cls = _sparkplug() if line.kind == SPARKPLUG_AWARE else plugin_class(line)
    try:
        return cls(dict(line.options))
    except ValueError as error:
        raise ConfigError(f"Plugin '{line.path}' refuses its options: {error}", line.origin) from None
    except ImportError as error:
        raise ConfigError(f"Plugin '{line.path}' needs a module that is missing: {error.name}.",
                          line.origin) from None
    except Exception as error:      # the error's text may contain a secret option
        raise ConfigError(f"Plugin '{line.path}' cannot be constructed: {type(error).__name__} in its constructor.",
                          line.origin) from None


def plugin_class(line: "Line") -> "type[Plugin]":
    """Return the class of a plugin line. Raises ConfigError."""
    from mosq.auth.plugin import Plugin

    path, origin = line.path, line.origin
    why = refusal(line)
    if why is not None:
        raise ConfigError(why, origin)
    name = path.removeprefix(PYTHON_PREFIX).strip()
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
        raise ConfigError(f"Unable to load plugin '{path}': {missing}; {_remedy(module_name, error)}", origin) from None
    except Exception as error:
        raise ConfigError(f"Unable to load plugin '{path}': importing '{module_name}' raises "
                          f"{type(error).__name__}: {error}", origin) from None
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(f"Unable to load plugin '{path}': module '{module_name}' has no '{class_name}'.", origin)
    return found


def _remedy(module_name: str, error: ImportError) -> str:
    """Return what to do about a module that is missing."""
    extra = EXTRAS.get(module_name)
    if extra is None or (error.name or "").startswith("mosq."):
        return f"expected it on Python's path ({sys.executable}, PYTHONPATH)."
    from mosq.tools.extras import install_advice

    return install_advice(extra)


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
    except ModuleNotFoundError as error:
        raise ConfigError(f"Unable to load plugin '{path}': there is no module '{error.name}'; "
                          f"{_remedy(point.module, error)}", origin) from None
    except Exception as error:
        raise ConfigError(f"Unable to load plugin '{path}': loading {point.value} raises {type(error).__name__}: "
                          f"{error}", origin) from None


def _sparkplug() -> "type[Plugin]":
    from mosq.auth.sparkplug import SparkplugAware

    return SparkplugAware
