"""Define the named configurations for wire cases. One broker process serves all cases of a flavour.

A flavour without a listener gets one on a free loopback port, with anonymous access.
"""

from __future__ import annotations

from tests.harness.certificates import TLS_LINES, server_files

_LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"

FLAVOURS: dict[str, str] = {
    "plain": "sys_interval 0\n",
    "plain-ws": _LISTENER + "protocol websockets\nsys_interval 0\n",
    "plain-tls": _LISTENER + TLS_LINES + "sys_interval 0\n",
    "plain-wss": _LISTENER + TLS_LINES + "protocol websockets\nsys_interval 0\n",
    "compact-tls": _LISTENER + TLS_LINES + "tls_compact_records true\nsys_interval 0\n",
    "compact-wss": _LISTENER + TLS_LINES + "tls_compact_records true\nprotocol websockets\nsys_interval 0\n",
    "sys": "sys_interval 1\n",
    "closed-shop": "listener {port} 127.0.0.1\n",  # allow_anonymous defaults to false with a listener
    "max-keepalive": "max_keepalive 30\n",
    "no-empty-id": _LISTENER + "allow_zero_length_clientid false\n",
    "id-prefix": _LISTENER + "auto_id_prefix pre-\n",
    "only-5": _LISTENER + "accept_protocol_versions 5\n",
    "only-34": _LISTENER + "accept_protocol_versions 3, 4\n",
    "no-retain": "retain_available false\n",
    "max-qos-1": _LISTENER + "max_qos 1\n",
    "max-qos-0": _LISTENER + "max_qos 0\n",
    "alias-3": _LISTENER + "max_topic_alias 3\n",
    "alias-0": _LISTENER + "max_topic_alias 0\n",
    "inflight-2": "max_inflight_messages 2\n",
    "queue-3": "max_queued_messages 3\nmax_inflight_messages 2\n",
    "queue-bytes": "max_queued_bytes 100\nmax_queued_messages 0\nmax_inflight_messages 1\n",
    "queue-qos0": "queue_qos0_messages true\n",
    "packet-100": "max_packet_size 100\n",
    "levels-3": "max_topic_levels 3\n",
    "payload-20": "message_size_limit 20\n",
    "connections-2": _LISTENER + "max_connections 2\n",
    "global-connections-2": "global_max_connections 2\n",
    "global-clients-2": "global_max_clients 2\n",
    "no-duplicates": "allow_duplicate_messages false\n",
    "upgrade-qos": "upgrade_outgoing_qos true\n",
    "receive-maximum-log": "receive_maximum_policy log\nmax_inflight_messages 2\n",
    "acl": "acl_file {dir}/acl\n",
    "acl-refuse": "acl_file {dir}/acl\nacl_refuse_subscribe true\n",
    "control-acl": "acl_file {dir}/acl\n",
    "control": "control_loopback true\n",
    "control-levels-3": "control_loopback true\nmax_topic_levels 3\n",
    "control-mount": _LISTENER + "mount_point below/\n",
    "one-client": "sys_interval 0\n# a process of its own\n",
    "client-expiry": "persistent_client_expiration 1s\n",
}
_ACL = """\
# anonymous clients
topic read news/#
topic write inbox/#
topic readwrite both/+/x
topic deny both/no/x
topic $SYS/broker/version

user ann
topic ann/#

pattern readwrite own/%c/#
pattern write from/%u
"""
_CONTROL_ACL = """\
topic readwrite #

user ann
topic write $CONTROL/mosq/index/v1

user bob
topic readwrite $CONTROL/#
topic deny $CONTROL/mosq/index/v1
"""
FILES: dict[str, dict[str, str]] = {
    "acl": {"acl": _ACL},
    "acl-refuse": {"acl": _ACL},
    "control-acl": {"acl": _CONTROL_ACL},
    "plain-tls": server_files(),
    "plain-wss": server_files(),
    "compact-tls": server_files(),
    "compact-wss": server_files(),
}
