"""Converts a bridge of the configuration into the data plane's settings. Knows options and units; opens nothing."""

import socket

from mosq.config.bridge import Bridge, BridgeTopic
from mosq.config.model import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSIONS = {"mqttv31": 3, "mqttv311": 4, "mqttv50": 5}
LAZY = "lazy"


def bridge_specs(config: Config, hostname: str) -> "list[dict[str, Any]]":
    """Return the settings of all bridges for the engine."""
    return [bridge_spec(config, bridge, hostname) for bridge in config.bridges]


def bridge_spec(config: Config, bridge: Bridge, hostname: str) -> "dict[str, Any]":
    """Return the settings of one bridge for the engine; see cext/setup/bridges.pyx."""
    remote_id = bridge.remote_id(hostname)
    lazy = bridge.start_type == LAZY
    password = bridge.remote_password
    return {
        "name": bridge.name,
        "local_clientid": bridge.local_id(hostname),
        "local_username": bridge.local_username,
        "remote_clientid": remote_id,
        "remote_username": bridge.remote_username,
        "remote_password": None if password is None else password.encode("utf-8", "surrogateescape"),
        "version": VERSIONS[bridge.bridge_protocol_version],
        "clean_start": bridge.cleansession,
        "local_clean": bridge.cleansession if bridge.local_cleansession is None else bridge.local_cleansession,
        "keepalive_s": bridge.keepalive_interval,
        "try_private": bridge.try_private,
        "topics": [_topic(topic) for topic in bridge.topics],
        "notifications": bridge.notifications,
        "notifications_local_only": bridge.notifications_local_only,
        "notification_topic": bridge.notification_topic or f"$SYS/broker/connection/{remote_id}/state",
        "attempt_unsubscribe": bridge.bridge_attempt_unsubscribe,
        "outgoing_retain": bridge.bridge_outgoing_retain,
        "receive_maximum": bridge.bridge_receive_maximum or config.max_inflight_messages,
        "topic_alias_max": bridge.bridge_max_topic_alias,
        "session_expiry_s": bridge.bridge_session_expiry_interval,
        "packet_max": bridge.bridge_max_packet_size,
        "packet_max_in": config.max_packet_size if "max_packet_size" in config.origins else 0,
        "threshold": bridge.threshold if lazy else 0,
        "idle_ms": 1000 * bridge.idle_timeout if lazy else 0,
        "tls": _tls(bridge),
        "user_timeout_ms": max(0, bridge.bridge_tcp_user_timeout),
        "tcp_keepalive": bridge.tcp_keepalive_s,
        "bind": bridge.bridge_bind_address,
        "loop_guard": bridge.bridge_loop_guard,
        "reload_lazy": bridge.bridge_reload_type != "immediate",
    }


def _topic(topic: BridgeTopic) -> "dict[str, Any]":
    return {"direction": topic.direction, "qos": topic.qos, "local": topic.local, "remote": topic.remote,
            "local_prefix": topic.local_prefix, "remote_prefix": topic.remote_prefix, "whole": topic.pattern is None}


def _tls(bridge: Bridge) -> "dict[str, Any] | None":
    if not bridge.tls and not bridge.bridge_psk:
        return None
    return {
        "cafile": bridge.bridge_cafile,
        "capath": bridge.bridge_capath,
        "certfile": bridge.bridge_certfile,
        "keyfile": bridge.bridge_keyfile,
        "tls_version": bridge.bridge_tls_version,
        "ciphers": bridge.bridge_ciphers,
        "ciphers_tls1.3": getattr(bridge, "bridge_ciphers_tls1.3"),
        "alpn": bridge.bridge_alpn,
        "use_os_certs": bridge.bridge_tls_use_os_certs,
        "insecure": bridge.bridge_insecure,
        "require_ocsp": bridge.bridge_require_ocsp,
        "identity": bridge.bridge_identity,
        "psk": bridge.bridge_psk,
    }


def bound_family(bridge: Bridge) -> int:
    """Return the address family that bridge_bind_address restricts the bridge to; 0: any."""
    address = bridge.bridge_bind_address
    return 0 if address is None else socket.AF_INET6 if ":" in address else socket.AF_INET
