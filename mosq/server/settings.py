"""Converts a configuration into the engine's settings: plain dictionaries in the engine's words and units.

Names are those of the options; flags are 0 or 1; durations are seconds, with -1 for never. This module knows what
options mean, not what the engine does with them. It imports nothing of `mosq.auth`, so a broker without passwords and
plugins does not pay for it.
"""

from mosq.config.acl import load_acl
from mosq.config.errors import ConfigError
from mosq.config.model import Config, Listener
from mosq.config.options import TUNING
from mosq.config.plugin import all_plugins, refuse
from mosq.config.security import SecuritySource, places_of, securities_of
from mosq.log_types import ERROR, INFORMATION, LOG_ALL, LOG_TYPES, NOTICE, WARNING
from mosq.version import MOSQUITTO_VERSION, VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.config.acl import AclRule
    from mosq.engine import ListenerSpec, Security, SettingValue

__all__ = ["SecuritySource", "engine_listeners", "engine_securities", "engine_settings", "http_listeners",
           "log_mask", "needs_access", "securities_of"]

LOG_DEFAULT = ERROR | WARNING | NOTICE | INFORMATION
HTTP_API = "http_api"
RESERVED_ALWAYS = 32    # descriptors: the store (segments, spare, folder, cleaning), files of a reload, imports
RESERVED_HTTP = 80      # descriptors of an HTTP listener: its connections, and the files that it sends
NODE_TURN_INTERVAL_US = 1000    # each message of a node crosses links, which wake several processes
RESERVED_PEER = 40              # for each worker elsewhere: READY_MAX of mosq/cluster/reach.py, links, handshakes

# passed on unchanged
_PLAIN = (
    "observe_messages",
    "sys_interval", "allow_duplicate_messages", "check_retain_source", "connection_messages", "upgrade_outgoing_qos",
    "set_tcp_nodelay", "memory_limit", "message_size_limit", "max_packet_size", "max_keepalive",
    "max_inflight_messages", "max_inflight_bytes", "max_queued_messages", "max_queued_bytes", "queue_memory",
    "queue_qos0_messages", "global_max_clients", "global_max_connections", "retain_available",
    "persistent_client_expiration", "acl_refuse_subscribe",
    "login_memory", "receive_maximum_policy", "max_inbound_qos2_bytes", "max_output_bytes", "max_topic_levels",
    "connect_timeout", "tls_handshake_threads", "tls_handshakes_per_address", "turn_budget",
    "packet_buffer_size", "auth_timeout", "log_denied_per_second", "log_connections_max",
    "queue_overflow", "compat", "route_timeout", "link_memory",
    *TUNING,
)
_LISTENER_FLAGS = ("use_username_as_clientid", "require_certificate", "disable_client_cert_date_checks",
                   "use_identity_as_username", "use_subject_as_username", "proxy_protocol_v2_require_tls",
                   "tls_compact_records")
_LISTENER_TEXTS = ("bind_interface", "mount_point", "cafile", "capath", "certfile", "keyfile", "crlfile", "ciphers",
                   "ciphers_tls1.3", "tls_version", "psk_hint")
_PLACES = ("host", "path", "bind_interface", "socket_domain", "security", "cafile", "capath", "certfile", "keyfile",
           "crlfile")
_LISTENER_PLAIN = ("socket_domain", "protocol", "max_connections", "max_qos", "max_topic_alias",
                   "max_topic_alias_broker", "enable_proxy_protocol", "websockets_origin", "websockets_trusted_proxy",
                   "tls_keyform")


def log_mask(config: Config, quiet: bool = False, verbose: bool = False) -> int:
    """Return the enabled types of log lines as bits. quiet overrides verbose, verbose overrides log_type."""
    if quiet or (config.log_dest and all(dest == "none" for dest in config.log_dest)):
        return 0
    if verbose:
        return LOG_ALL
    if not config.log_type:
        return LOG_DEFAULT
    mask = 0
    for word in config.log_type:
        mask = 0 if word == "none" else LOG_ALL if word == "all" else mask | LOG_TYPES[word]
    return mask


def engine_settings(config: Config, mask: int) -> "dict[str, SettingValue]":
    """Return the settings of the engine that are not of a listener. `mask`: see log_mask."""
    settings: dict[str, SettingValue] = {name: _plain(getattr(config, name)) for name in _PLAIN}
    settings["clientid_prefixes"] = config.clientid_prefixes or ""
    settings["shared_strategy"] = "\n".join(config.shared_strategy)
    settings["durability_topic"] = "\n".join(config.durability_topic)
    settings["takeover_will"] = "none" if config.compat else config.takeover_will
    settings["tls_keylog"] = config.tls_keylog or ""
    settings["cluster_reference"] = config.cluster_reference or ""
    settings["cluster_node"] = (config.cluster_node or "") if config.cluster is not None else ""
    settings["turn_interval"] = (config.turn_interval if config.turn_interval >= 0
                                 else 0 if config.cluster is None else NODE_TURN_INTERVAL_US)
    settings["log_mask"] = mask
    settings["descriptors_reserved"] = descriptors_reserved(config)
    settings["control_loopback"] = int(config.control_loopback or config.local_only)
    # Tools look for Mosquitto's wording in $SYS/broker/version; our own name and version follow it.
    settings["version"] = f"mosquitto version {MOSQUITTO_VERSION} (mosq {VERSION})"
    return settings


def descriptors_reserved(config: Config) -> int:
    """Return the number of descriptors that clients leave free: the broker opens them while it runs. Without them the
    store would stop, and with it every acknowledgement. The engine reserves at most half of the process's limit."""
    shards: int = sum(spec["shards"] for spec in stream_specs(config))
    http = len(http_listeners(config))
    return (RESERVED_ALWAYS + len(config.log_dest) + 2 * len(config.listeners) + 3 * len(config.bridges)
            + 4 * shards + RESERVED_HTTP * http
            + (0 if config.cluster_listener is None else RESERVED_PEER * (config.cluster_local - 1)))


def engine_listeners(config: Config) -> "list[ListenerSpec]":
    """Return the listeners of MQTT and WebSocket clients, in the order of the configuration."""
    places = places_of(securities_of(config))
    return [_listener(config, listener, places[id(listener)]) for listener in config.listeners
            if listener.protocol != HTTP_API]


def http_listeners(config: Config) -> list[Listener]:
    """Return the listeners that the control plane serves."""
    return [listener for listener in config.listeners if listener.protocol == HTTP_API]


def needs_access(config: Config) -> bool:
    """Return whether passwords must be checked or plugins run. If so, `mosq.auth` makes the securities."""
    return any(source.password_file is not None or source.plugins for source in securities_of(config))


def stream_specs(config: Config) -> "list[dict[str, Any]]":
    """Return the streams as the engine takes them."""
    if not config.stream and not config.stream_events:
        return []
    from mosq.config.streams import events_of, stream_of

    events = events_of(tuple(config.stream_events[0].split())) if config.stream_events else None
    streams = [*map(stream_of, config.stream), *([events] if events else [])]
    return [
        {"name": s.name, "filters": s.filters, "shards": s.shards, "retain_age_us": s.retain_age_s * 1_000_000,
         "retain_bytes": s.retain_bytes, "events": s is events}
        for s in streams]


def acl_rules(config: Config) -> "list[list[AclRule] | None]":
    """Return the rules of each security; None: everything is allowed. Raises ConfigError."""
    loaded: dict[str, list[AclRule]] = {}
    for source in securities_of(config):
        if source.acl_file is not None and source.acl_file not in loaded:
            loaded[source.acl_file] = load_acl(source.acl_file, source.acl_origin)
    return [None if source.acl_file is None else loaded[source.acl_file] for source in securities_of(config)]


def engine_securities(config: Config) -> "list[Security]":
    """Return the securities of a configuration that has at most acl_files (see needs_access). Raises ConfigError if the
    configuration has more: without the missing checks every client could connect."""
    refuse(all_plugins(config))
    for source in securities_of(config):
        if source.password_file is not None or source.plugins:
            what, origin = ("password_file", source.password_origin) if source.password_file is not None else (
                "plugin", source.plugins[0].origin)
            raise ConfigError(f"'{what}' cannot be used here: this program does not check users.", origin)
    return [{"acl": acl, "authenticate": False, "authorize": False, "extended": False, "transform_in": (),
             "transform_out": (), "events": False} for acl in acl_rules(config)]


def _listener(config: Config, listener: Listener, security: int) -> "ListenerSpec":
    spec: ListenerSpec = {name: getattr(listener, name) for name in _LISTENER_PLAIN}
    for name in _LISTENER_FLAGS:
        spec[name] = int(getattr(listener, name))
    for name in _LISTENER_TEXTS:
        spec[name] = getattr(listener, name) or ""
    spec["port"] = listener.port
    spec["host"] = listener.host or ""
    spec["path"] = listener.path or ""
    spec["versions"] = listener.versions_mask()
    spec["allow_anonymous"] = int(config.allows_anonymous(listener))
    spec["allow_zero_length_clientid"] = int(bool(config.security_of(listener, "allow_zero_length_clientid")))
    spec["auto_id_prefix"] = config.auto_id_prefix_of(listener)
    spec["psk_file"] = str(config.security_of(listener, "psk_file") or "")
    spec["security"] = security
    spec["own_rules"] = int(config.per_listener_settings or bool(listener.plugins))
    spec["durability"] = listener.listener_durability
    if sum(one.port == listener.port for one in config.listeners) > 1:
        spec["kind"] = _kind(spec, listener)
    return spec


def _kind(spec: "ListenerSpec", listener: Listener) -> int:
    """Return a number for all that a listener decides about its clients, which is the same at each node of a cluster.
    Addresses, folders, the files of TLS and the place of its security are not part of it. Only several listeners of one
    port need it."""
    from os.path import basename
    from zlib import crc32

    decides = {name: value for name, value in spec.items() if name not in _PLACES} | listener.security
    named = {name: basename(str(value)) if name.endswith("_file") else value for name, value in decides.items()}
    plugins = [(basename(one.path), one.options) for one in listener.plugins]
    return crc32(repr((sorted(named.items()), plugins)).encode("utf-8", "surrogateescape")) or 1


def _plain(value: "SettingValue") -> "SettingValue":
    return int(value) if isinstance(value, bool) else value
