"""A plugin line with its options, and what it asks for. Knows the plugins that are built in by name; loads none."""

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
    """One `plugin`, `global_plugin` or `plugin_load` line. `options` may hold secrets: never to a log."""

    __slots__ = ("path", "name", "options", "scope", "origin", "deny_special_chars")

    def __init__(self, path: str, name: str | None, scope: str, origin: Origin) -> None:
        self.path = path
        self.name = name                # of plugin_load
        self.options: list[tuple[str, str]] = []
        self.scope = scope              # "global" or "listener"
        self.origin = origin
        self.deny_special_chars = True

    @property
    def kind(self) -> str:
        """Which one it is: PYTHON, one of BUILT_IN, or NATIVE, which cannot be loaded."""
        if self.path.startswith(PYTHON_PREFIX):
            return PYTHON
        stem = self.path.replace("\\", "/").rpartition("/")[2]
        for suffix in (".so", ".dll", ".dylib"):
            stem = stem.removesuffix(suffix)
        stem = stem.removeprefix("mosquitto_").replace("_", "-")
        return stem if stem in BUILT_IN else NATIVE

    def option(self, key: str) -> str | None:
        """The last value of an option, as Mosquitto's plugins take it."""
        for name, value in reversed(self.options):
            if name == key:
                return value
        return None

    def directory_files(self) -> tuple[str, str | None]:
        """Of dynamic security: its file, and that of the first password or None. Raises ConfigError."""
        unknown = next((key for key, _ in self.options if key not in ("config_file", "password_init_file")), None)
        if unknown is not None:
            raise ConfigError(f"Unknown option 'plugin_opt_{unknown}' of plugin '{self.path}'; expected "
                              "plugin_opt_config_file and plugin_opt_password_init_file.", self.origin)
        path = self.option("config_file")
        if not path:
            raise ConfigError(f"Plugin '{self.path}' needs a line `plugin_opt_config_file FILE`.", self.origin)
        return path, self.option("password_init_file")

    def key(self) -> tuple[object, ...]:
        """What tells it from another, for a reload."""
        return self.path, self.name, tuple(self.options), self.scope, self.deny_special_chars


def all_plugins(config: "Config") -> list[Plugin]:
    """Each once."""
    plugins = [*config.plugins, *config.named_plugins.values()]
    plugins += [plugin for listener in config.listeners for plugin in listener.plugins]
    return list({id(plugin): plugin for plugin in plugins}.values())


def refusal(plugin: Plugin) -> str | None:
    """Why the broker cannot start with it, and what to do; None: it can."""
    kind = plugin.kind
    if kind == NATIVE:
        return (f"Unable to load the plugin '{plugin.path}': mosq does not load native plugins. Expected one that is "
                f"built in ({', '.join(BUILT_IN)}; a path with such a file name "
                "will do), or one in Python: `plugin python:package.module:Class`.")
    if kind == PYTHON and plugin.path.removeprefix(PYTHON_PREFIX).count(":") > 1:
        return (f"Invalid plugin '{plugin.path}'. Expected `python:package.module:Class`, or `python:NAME` for an "
                "entry point of mosq.plugins.")
    return None


def refuse(plugins: list[Plugin]) -> None:
    """Raises ConfigError for the first that cannot be."""
    for plugin in plugins:
        why = refusal(plugin)
        if why is not None:
            raise ConfigError(why, plugin.origin)


def has_store(config: "Config") -> bool:
    """Return whether this configuration has a store. The plugin that asks for one counts as much as the option."""
    asked = config.persistence or any(plugin.kind == PERSIST_SQLITE for plugin in all_plugins(config))
    return asked and config.durability != "none"
