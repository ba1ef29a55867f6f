"""The options of this node that all nodes of a cluster should have alike. Addresses, folders, logs, limits of a machine
and names may differ."""

from hashlib import sha256

from mosq.auth.dynsec.document import first_of
from mosq.config.plugin import all_plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config, Listener

DIGITS = 12                     # of a digest
OPTIONS = (
    "acl_refuse_subscribe", "allow_duplicate_messages", "check_retain_source", "clientid_prefixes", "compat",
    "durability", "durability_topic", "enable_control_api", "max_inbound_qos2_bytes", "max_inflight_bytes",
    "max_inflight_messages", "max_keepalive", "max_packet_size", "max_queued_bytes", "max_queued_messages",
    "max_topic_levels", "message_size_limit", "per_listener_settings", "persistent_client_expiration",
    "queue_overflow", "queue_qos0_messages", "receive_maximum_policy", "retain_available", "retain_expiry_interval",
    "route_timeout", "shared_strategy", "stream", "stream_events", "takeover_will", "upgrade_outgoing_qos",
)


def values_of(config: "Config") -> dict[str, str]:
    """Return the options by name, in words of the configuration."""
    values = {name: _text(getattr(config, name)) for name in OPTIONS}
    values["dynamic security"] = "no" if first_of(all_plugins(config)) is None else "yes"
    values["listeners"] = ", ".join(sorted(_listener(one, config.allows_anonymous(one)) for one in config.listeners))
    path = config.acl_file
    if path is not None:
        try:
            with open(path, "rb") as file:
                values["the content of acl_file"] = f"sha256 {sha256(file.read()).hexdigest()[:DIGITS]}"
        except OSError as error:
            values["the content of acl_file"] = error.strerror or "unreadable"
    else:
        values["the content of acl_file"] = "no file"
    return values


def _listener(one: "Listener", anonymous: bool) -> str:
    parts = ["a unix socket" if one.path else str(one.port), one.protocol]
    parts += [name for name, has in (("with TLS", one.tls), ("with client certificates", one.require_certificate),
                                     (f"below {one.mount_point}", one.mount_point),
                                     ("for clients without a user name", anonymous)) if has]
    return " ".join(parts)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)
