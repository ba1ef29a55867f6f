"""Determines which files and plugins decide about which listeners. One `SecuritySource` serves all listeners; with
per_listener_settings each listener has one, and so does a listener with its own plugins. Opens no file."""

from mosq.config.model import Config, Listener
from mosq.config.plugin import Plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.errors import Origin


class SecuritySource:
    """The files and plugins of one security. Its index in the list is the `security` of its listeners."""

    __slots__ = ("acl_file", "password_file", "psk_file", "plugins", "allow_anonymous", "listeners", "acl_origin",
                 "password_origin", "psk_origin")

    def __init__(self, config: Config, listener: Listener | None, plugins: list[Plugin]) -> None:
        per_listener = listener is not None and config.per_listener_settings

        def setting(name: str) -> str | None:
            value = listener.security.get(name) if per_listener and listener else getattr(config, name)
            return None if value is None else str(value)

        origins = listener.origins if per_listener and listener else config.origins
        self.acl_file: str | None = setting("acl_file")
        self.acl_origin: Origin | None = origins.get("acl_file")
        self.password_file: str | None = setting("password_file")
        self.password_origin: Origin | None = origins.get("password_file")
        self.psk_file: str | None = setting("psk_file")
        self.psk_origin: Origin | None = origins.get("psk_file")
        self.plugins = plugins                          # in the order in which they are called
        # whether clients without a user name may connect; `listener_allow_anonymous` overrides it
        anonymous = (listener.security.get("allow_anonymous") if per_listener and listener
                     else config.allow_anonymous)
        self.allow_anonymous = config.local_only if anonymous is None else bool(anonymous)
        self.listeners: list[Listener] = []


def securities_of(config: Config) -> list[SecuritySource]:
    """Return the securities in an order that depends only on the configuration: the one that all listeners share is
    first."""
    if config.per_listener_settings:
        sources = []
        for listener in config.listeners:
            source = SecuritySource(config, listener, config.plugins_of(listener))
            source.listeners.append(listener)
            sources.append(source)
        return sources
    sources = [SecuritySource(config, None, config.plugins)]
    for listener in config.listeners:
        if listener.plugins:
            sources.append(SecuritySource(config, listener, config.plugins_of(listener)))
            sources[-1].listeners.append(listener)
        else:
            sources[0].listeners.append(listener)
    return sources


def places_of(sources: list[SecuritySource]) -> dict[int, int]:
    """Return the index of the security of each listener, by id() of the listener."""
    return {id(listener): i for i, source in enumerate(sources) for listener in source.listeners}
