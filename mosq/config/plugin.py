"""A plugin line with its options. Knows the built-in plugins by name; loads none."""

import os

from mosq.config.errors import ConfigError, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config

ACL_FILE, PASSWORD_FILE, SPARKPLUG_AWARE = "acl-file", "password-file", "sparkplug-aware"
PERSIST_SQLITE, DYNAMIC_SECURITY = "persist-sqlite", "dynamic-security"
PYTHON, NATIVE = "python", "native"
BUILT_IN = (ACL_FILE, PASSWORD_FILE, SPARKPLUG_AWARE, PERSIST_SQLITE, DYNAMIC_SECURITY)
PYTHON_PREFIX = "python:"


class Plugin:
    """One `plugin`, `global_plugin` or `plugin_load` line. `options` may contain secrets, so they are never logged."""

    __slots__ = ("path", "name", "options", "scope", "origin", "deny_special_chars", "on_loop", "thread_origin",
                 "shown", "control_topics", "kind")

    def __init__(self, path: str, name: str | None, scope: str, origin: Origin) -> None:
        self.path = path
        self.name = name                # name given by plugin_load
        self.options: list[tuple[str, str]] = []
        self.scope = scope              # "global" or "listener"
        self.origin = origin
        self.deny_special_chars = True
        self.on_loop = False            # a native plugin is called on the data plane's loop
        self.thread_origin: Origin | None = None        # of its plugin_thread line
        self.shown: str | None = None   # name that a loaded native plugin has given itself, and its control topics
        self.control_topics: list[str] = []
        self.kind = kind_of(path)       # PYTHON, one of BUILT_IN, or NATIVE: a library for Mosquitto

    @property
    def is_sqlite(self) -> bool:
        """True for persist-sqlite, built in or as Mosquitto's library."""
        return _stem(self.path) == PERSIST_SQLITE

    @property
    def thread(self) -> str:
        """The value of `plugin_thread`."""
        return "loop" if self.on_loop else "own"

    def option(self, key: str) -> str | None:
        """Return the last value of an option, as Mosquitto's plugins do."""
        for name, value in reversed(self.options):
            if name == key:
                return value
        return None

    def directory_files(self) -> tuple[str, str | None]:
        """Return the file of dynamic security and the file of the first password (or None). Raises ConfigError."""
        unknown = next((key for key, _ in self.options if key not in ("config_file", "password_init_file")), None)
        if unknown is not None:
            raise ConfigError(f"Unknown option 'plugin_opt_{unknown}' of plugin '{self.path}'; expected "
                              "plugin_opt_config_file and plugin_opt_password_init_file.", self.origin)
        path = self.option("config_file")
        if not path:
            raise ConfigError(f"Plugin '{self.path}' needs a line `plugin_opt_config_file FILE`.", self.origin)
        return path, self.option("password_init_file")

    def key(self) -> tuple[object, ...]:
        """Return all settings of the plugin, to find out at a reload whether they changed; not its thread, for which
        the broker must restart."""
        return self.path, self.name, tuple(self.options), self.scope, self.deny_special_chars


def kind_of(path: str) -> str:
    """Return the kind of plugin. persist-sqlite is built in only where Mosquitto's library of it is missing: the
    built-in one reads its database, and the library keeps it current."""
    if path.startswith(PYTHON_PREFIX):
        return PYTHON
    stem = _stem(path)
    if stem == PERSIST_SQLITE and os.path.isfile(path):
        return NATIVE
    return stem if stem in BUILT_IN else NATIVE


def _stem(path: str) -> str:
    """Return the name of a plugin without Mosquitto's beginning and the endings of libraries."""
    stem = path.replace("\\", "/").rpartition("/")[2]
    for suffix in (".so", ".dll", ".dylib"):
        stem = stem.removesuffix(suffix)
    return stem.removeprefix("mosquitto_").replace("_", "-")


def all_plugins(config: "Config") -> list[Plugin]:
    """Return all plugins of a configuration, each once."""
    plugins = [*config.plugins, *config.named_plugins.values()]
    plugins += [plugin for listener in config.listeners for plugin in listener.plugins]
    return list({id(plugin): plugin for plugin in plugins}.values())


def refusal(plugin: Plugin) -> str | None:
    """Return why the broker cannot use the plugin and what to do; None if it can."""
    kind = plugin.kind
    if kind == PYTHON and plugin.path.removeprefix(PYTHON_PREFIX).count(":") > 1:
        return (f"Invalid plugin '{plugin.path}'. Expected `python:package.module:Class`, or `python:NAME` for an "
                "entry point of mosq.plugins.")
    return None


def refuse(plugins: list[Plugin]) -> None:
    """Raise ConfigError for the first plugin that the broker cannot use."""
    for plugin in plugins:
        why = refusal(plugin)
        if why is not None:
            raise ConfigError(why, plugin.origin)


def has_store(config: "Config") -> bool:
    """Return whether this configuration has a store. A plugin that keeps the broker's state counts as much as the
    option; persist-sqlite, if it knows a place."""
    return ((config.persistence or sqlite_keeps(config) or config.kept_by_plugin) and config.durability != "none"
            and not config.without_store)


def sqlite_keeps(config: "Config") -> bool:
    """Return whether persist-sqlite asks for a store and knows a place."""
    return any(plugin.is_sqlite and sqlite_place(config, plugin) for plugin in all_plugins(config))


def sqlite_place(config: "Config", plugin: Plugin) -> str | None:
    """Return the place that persist-sqlite uses: persistence_location or, without that, its file; None: neither is
    set. Mosquitto keeps nothing then."""
    return config.persistence_location or plugin.option("db_file") or None


def sqlite_file(config: "Config") -> str | None:
    """Return the file of persist-sqlite if it names the store; None: persistence_location and persistence_file do."""
    if config.persistence_location:
        return None
    return next((plugin.option("db_file") for plugin in all_plugins(config)
                 if plugin.is_sqlite and plugin.option("db_file")), None)


def sqlite_imports(config: "Config") -> bool:
    """Return whether the built-in persist-sqlite is used, which only reads its database."""
    return any(plugin.kind == PERSIST_SQLITE for plugin in all_plugins(config))
