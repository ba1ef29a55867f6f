"""Which password file and which plugins hold for which listener: the securities of a configuration. Knows no files.

One for all listeners; with `per_listener_settings true` one for each; a listener with plugins of its own has one of
its own in any case. Global plugins come before a listener's.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.errors import Origin
    from mosq.config.model import Config, Listener


class Scope:
    """What one security is made of; `plugins` as the configuration has them, in their order."""

    __slots__ = ("password_file", "acl_file", "origins", "plugins", "listeners")

    def __init__(self, password_file: str | None, acl_file: str | None, origins: "dict[str, Origin]",
                 plugins: list, listeners: list[int]) -> None:  # type: ignore[type-arg]
        self.password_file, self.acl_file, self.origins = password_file, acl_file, origins
        self.plugins, self.listeners = plugins, listeners


def scopes_of(config: "Config") -> list[Scope]:
    """In the order of the engine's securities."""
    shared = [plugin for plugin in getattr(config, "plugins", ())
              if plugin.scope == "global" or not config.per_listener_settings]
    common = Scope(getattr(config, "password_file", None), config.acl_file, config.origins, shared, [])
    scopes = []
    for i, listener in enumerate(config.listeners):
        own = list(getattr(listener, "plugins", ()))
        if config.per_listener_settings:
            scopes.append(Scope(_text(listener, "password_file"), _text(listener, "acl_file"),
                                getattr(listener, "origins", {}), shared + own, [i]))
        elif own:
            scopes.append(Scope(common.password_file, common.acl_file, config.origins, shared + own, [i]))
        else:
            common.listeners.append(i)
    if common.listeners or not scopes:
        scopes.insert(0, common)
    return scopes


def needs_access(config: "Config") -> bool:
    """Whether anybody has to be asked: else `mosq.auth.access` need not be loaded."""
    return any(scope.password_file is not None or scope.plugins for scope in scopes_of(config))


def _text(listener: "Listener", name: str) -> str | None:
    value = listener.security.get(name)
    return None if value is None else str(value)
