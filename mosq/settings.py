"""What the engine gets of a configuration: plain dictionaries in the engine's words and units.

Names are those of the options; flags are 0 or 1; durations are seconds with -1 for never.
"""

from mosq import __version__
from mosq.config.acl import load_acl
from mosq.config.model import Config, Listener
from mosq.config.options import LOG_ALL, LOG_TYPES, TUNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.engine import Security, SettingValue

MOSQUITTO_VERSION = "2.1.2"    # whose surface this is
LOG_DEFAULT = LOG_TYPES["error"] | LOG_TYPES["warning"] | LOG_TYPES["notice"] | LOG_TYPES["information"]

# passed on as they are
_PLAIN = (
    "sys_interval", "allow_duplicate_messages", "check_retain_source", "connection_messages", "upgrade_outgoing_qos",
    "set_tcp_nodelay", "memory_limit", "message_size_limit", "max_packet_size", "max_keepalive",
    "max_inflight_messages",
    "max_inflight_bytes", "max_queued_messages", "max_queued_bytes", "queue_qos0_messages", "global_max_clients",
    "global_max_connections", "retain_available", "persistent_client_expiration", "acl_refuse_subscribe",
    "receive_maximum_policy", "max_output_bytes", "max_topic_levels", "connect_timeout", "turn_budget",
    *TUNING,
)


def log_mask(config: Config, quiet: bool = False, verbose: bool = False) -> int:
    """The types of log lines that are wanted, as bits: quiet beats verbose beats log_type."""
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
    settings: dict[str, SettingValue] = {name: _plain(getattr(config, name)) for name in _PLAIN}
    settings["clientid_prefixes"] = config.clientid_prefixes or ""
    settings["shared_strategy"] = "\n".join(config.shared_strategy)
    settings["log_mask"] = mask
    # tools look for Mosquitto's words in $SYS/broker/version; who we really are stands beside them
    settings["version"] = f"mosquitto version {MOSQUITTO_VERSION} (mosq {__version__})"
    return settings


def engine_listeners(config: Config) -> "list[dict[str, SettingValue]]":
    return [_listener(config, listener) for listener in config.listeners]


def engine_securities(config: Config) -> "list[Security]":
    """What the listeners' clients may do: one for all. Raises ConfigError."""
    acl = None if config.acl_file is None else load_acl(config.acl_file, config.origins.get("acl_file"))
    return [{"acl": acl}]       # None: everything is allowed


def _listener(config: Config, listener: Listener) -> "dict[str, SettingValue]":
    return {
        "port": listener.port,
        "host": listener.host or "",
        "path": listener.path or "",
        "socket_domain": listener.socket_domain,
        "bind_interface": listener.bind_interface or "",
        "max_connections": listener.max_connections,
        "max_qos": listener.max_qos,
        "max_topic_alias": listener.max_topic_alias,
        "max_topic_alias_broker": listener.max_topic_alias_broker,
        "allow_anonymous": int(config.allows_anonymous(listener)),
        "allow_zero_length_clientid": int(config.allow_zero_length_clientid),
        "versions": listener.versions_mask(),
        "auto_id_prefix": config.auto_id_prefix_of(listener),
        "mount_point": listener.mount_point or "",
        "use_username_as_clientid": int(listener.use_username_as_clientid),
    }


def _plain(value: "SettingValue") -> "SettingValue":
    return int(value) if isinstance(value, bool) else value
