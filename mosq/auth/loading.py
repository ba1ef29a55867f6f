"""Makes the plugins of a configuration: Python classes, or those that Mosquitto ships.

Knows names of modules and files, not what plugins do. A native plugin (any other .so) cannot be loaded; the error names
the alternatives.
"""

import sys

from mosq.config.errors import ConfigError
from mosq.config.plugin import PYTHON, PYTHON_PREFIX, SPARKPLUG_AWARE, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
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


def unloadable(line: "Line") -> str | None:
    """Return why the start would refuse the plugin, and what to do; None: no reason is known. Runs no code of plugins,
    apart from imports of mosq's own."""
    why = refusal(line)
    if why is not None or line.kind != PYTHON:
        return why
    name = line.path.removeprefix(PYTHON_PREFIX).strip()
    try:
        module = name.partition(":")[0] if ":" in name else _entry_point(name, line.path, line.origin).module
        if module in EXTRAS:
            plugin_class(line)
            return None
    except ConfigError as error:
        return error.text
    missing = _missing(module)
    if missing is None:
        return None
    return (f"Unable to load plugin '{line.path}': there is no module '{missing}'; "
            f"{_remedy(module, ModuleNotFoundError(name=missing))}")


def _missing(module: str) -> str | None:
    """Return the name of the module or of its package that is missing. Imports nothing."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    top, *rest = module.split(".")
    try:
        spec = find_spec(top)
    except ValueError:                  # a module without a spec is there
        return None
    found = top
    for one in rest:
        if spec is None or module in sys.modules:
            break
        places = spec.submodule_search_locations
        if places is None or _has_own_path(spec):
            return None                 # only an import can tell
        found += f".{one}"
        spec = PathFinder.find_spec(found, places)
    return found if spec is None else None


def _has_own_path(spec: "ModuleSpec") -> bool:
    """Return whether the code of a package may change where its modules are."""
    get_source = getattr(spec.loader, "get_source", None)
    try:
        return get_source is not None and "__path__" in (get_source(spec.name) or "")
    except (ImportError, OSError):      # it cannot be read; its import fails, too
        return True


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


def _entry_point(name: str, path: str, origin: "Any") -> "EntryPoint":
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINTS)
    point = next((point for point in points if point.name == name), None)
    if point is None:
        known = ", ".join(sorted(point.name for point in points)) or "none"
        raise ConfigError(f"Unable to load plugin '{path}': no entry point '{name}' of {ENTRY_POINTS}; there are: "
                          f"{known}. For a class write `plugin python:MODULE:CLASS`.", origin)
    return point


def _by_entry_point(name: str, path: str, origin: "Any") -> "Any":
    point = _entry_point(name, path, origin)
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
