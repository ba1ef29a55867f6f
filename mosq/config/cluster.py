"""Checks the options of a node of a cluster. Opens no file; imported only if the configuration is that of a node.

A configuration with `cluster` is refused if it asks for something that nodes cannot do together yet.
"""

from mosq.cluster.address import Address, parse_address
from mosq.cluster.entries import PORT_MAX, check_name
from mosq.config.errors import ConfigError
from mosq.config.plugin import PERSIST_SQLITE, all_plugins, has_store
from mosq.config.streams import stream_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.config.errors import Origin
    from mosq.config.model import Config

TUNNEL = "use a tunnel such as stunnel, and redis:// to its local end"
NO_TLS = f"The store cannot use TLS to Redis. Expected redis:// or redis+sentinel://; {TUNNEL}."
NO_UNIX = "Expected redis:// or redis+sentinel://, which all nodes can reach, and no unix socket."


def check_cluster(config: "Config") -> None:
    """Raise ConfigError for the first error in the options of a node."""
    _check_values(config)
    found = next(_not_in_a_cluster(config), None)
    if found is not None:
        text, origin = found
        raise ConfigError(text, origin)


def address_of(config: "Config") -> Address:
    """Return where Redis is, without a password that a file has. Raises ConfigError."""
    origin = config.origins.get("cluster")
    try:
        address = parse_address(config.cluster or "", config.cluster_password_file, reads=False)
    except ValueError as error:
        raise ConfigError(f"Invalid 'cluster' value: {error}.", origin) from None
    if address.tls:
        raise ConfigError(f"Invalid 'cluster' value: {NO_TLS}", origin)
    if address.path:
        raise ConfigError(f"Invalid 'cluster' value: {NO_UNIX}", origin)
    return address


def listener_of(config: "Config") -> tuple[str, int] | None:
    """Return the address, "" for all, and the port on which this node takes the links of others; None: on none. Raises
    ConfigError."""
    if config.cluster_listener is None:
        return None
    port, *host = config.cluster_listener.split()
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= PORT_MAX) or len(host) > 1:
        raise ConfigError(f"Invalid 'cluster_listener' value ({config.cluster_listener[:80]}). Expected a port from 1 "
                          f"to {PORT_MAX}, and perhaps an address.", config.origins.get("cluster_listener"))
    return host[0] if host else "", int(port)


def _check_values(config: "Config") -> None:
    address_of(config)
    origins = config.origins
    if config.cluster_node is None:
        raise ConfigError("'cluster' needs a name for this node. Expected a line `cluster_node NAME`, with another "
                          "name on each node.", origins.get("cluster"))
    for name, value, of_what in (("cluster_node", config.cluster_node, "node"),
                                 ("cluster_name", config.cluster_name, "cluster")):
        try:
            check_name(value, of_what)
        except ValueError as error:
            raise ConfigError(f"Invalid '{name}' value ({value[:80]}): {error}.", origins.get(name)) from None
    if listener_of(config) is not None and config.cluster_secret_file is None:
        raise ConfigError("'cluster_listener' needs a secret that all nodes share. Expected a line "
                          "`cluster_secret_file FILE`.", origins.get("cluster_listener"))


def _is_limited(line: str) -> bool:
    stream = stream_of(line)
    return bool(stream.retain_age_s or stream.retain_bytes)


def _not_in_a_cluster(config: "Config") -> "Iterator[tuple[str, Origin | None]]":
    """Yield the error and the place of each option that a node cannot have, or cannot have yet."""
    origins = config.origins
    if config.cluster_local > 1:
        yield ("'cluster_local' cannot be used with 'cluster': `mosq cluster create --workers N` fixes the number of "
               "workers for all nodes. Expected one of the two options.", origins.get("cluster_local"))
    for plugin in all_plugins(config):
        if plugin.kind == PERSIST_SQLITE:
            yield (f"The plugin '{plugin.path}' cannot be used with 'cluster' yet: its state would differ on each "
                   "node. Expected a configuration without it.", plugin.origin)
    if not has_store(config):
        wanted = "a durability other than none" if config.durability == "none" else "`persistence true`"
        yield (f"'cluster' needs a store, because its workers move with their stores. Expected {wanted} as well.",
               origins.get("durability" if config.durability == "none" else "persistence", origins.get("cluster")))
    for name, is_limited in (("stream", _is_limited), ("stream_events", lambda line: len(line.split()) > 1)):
        if not all(map(is_limited, getattr(config, name))):
            yield (f"'{name}' of a node needs a limit, because the stream is in the memory of Redis. Expected "
                   "`retain_age TIME` or `retain_bytes SIZE` at the end of the line.", origins.get(name))
    for bridge in config.bridges:
        if not (bridge.local_clientid and bridge.remote_clientid):
            yield (f"The bridge '{bridge.name}' needs client ids that are the same on all nodes. Expected lines "
                   "`local_clientid ID` and `remote_clientid ID`.", bridge.origin)
    if "mosquitto_db" in origins and config.mosquitto_db:
        yield ("'mosquitto_db true' cannot be used with 'cluster' yet: the stores are in Redis. Expected "
               "`mosquitto_db false`, or no such line.", origins["mosquitto_db"])
