"""List every keyword of Mosquitto 2.1 with lines that set it, and the expected result, in one row each.

A row's check gets the configuration that was read. The effect on a running broker is in `EFFECTS` of test_effects.py, under the same keywords.
"""

from collections.abc import Callable

from mosq.config.model import Config, Listener
from mosq.log_types import LOG_TYPES
from mosq.server.settings import engine_listeners, engine_settings, log_mask, securities_of

# All keywords. The reference counts 143, because it adds the two `..._tls1.3` to a list that already has them.
KEYWORDS = """
accept_protocol_versions acl_file address addresses allow_anonymous allow_duplicate_messages allow_zero_length_clientid
auth_opt_ auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval autosave_on_changes bind_address
bind_interface bridge_alpn bridge_attempt_unsubscribe bridge_bind_address bridge_cafile bridge_capath bridge_certfile
bridge_ciphers bridge_ciphers_tls1.3 bridge_identity bridge_insecure bridge_keyfile bridge_max_packet_size
bridge_max_topic_alias bridge_outgoing_retain bridge_protocol_version bridge_psk bridge_receive_maximum bridge_reload_type
bridge_require_ocsp bridge_session_expiry_interval bridge_tcp_keepalive bridge_tcp_user_timeout bridge_tls_use_os_certs
bridge_tls_version cafile capath certfile check_retain_source ciphers ciphers_tls1.3 cleansession clientid
clientid_prefixes connection connection_messages crlfile dhparamfile disable_client_cert_date_checks enable_control_api
enable_proxy_protocol global_max_clients global_max_connections global_plugin http_dir idle_timeout include_dir
keepalive_interval keyfile listener listener_allow_anonymous listener_auto_id_prefix local_cleansession local_clientid
local_password local_username log_dest log_facility log_timestamp log_timestamp_format log_type max_connections
max_inflight_bytes max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes max_queued_messages
max_topic_alias max_topic_alias_broker maximum_qos memory_limit message_size_limit mount_point notification_topic
notifications notifications_local_only packet_buffer_size password password_file per_listener_settings persistence
persistence_file persistence_location persistent_client_expiration pid_file plugin plugin_load plugin_opt_ plugin_use port
protocol proxy_protocol_v2_require_tls psk_file psk_hint queue_qos0_messages remote_clientid remote_password
remote_username require_certificate restart_timeout retain_available retain_expiry_interval retained_persistence
retry_interval round_robin set_tcp_nodelay socket_domain start_type sys_interval threshold tls_engine
tls_engine_kpass_sha1 tls_keyform tls_version topic try_private upgrade_outgoing_qos use_identity_as_username
use_subject_as_username use_username_as_clientid user username websockets_headers_size websockets_log_level
websockets_origin
""".split()

Check = Callable[[Config], bool]
Row = tuple[list[str], Check]

LISTENER = ["listener 1883"]
BRIDGE = ["connection b", "address h", "topic #"]
TLS = [*LISTENER, "certfile /c", "keyfile /k"]
PLUGIN = ["plugin python:a:B"]


def first(config: Config) -> Listener:
    return config.listeners[0]


def setting(name: str, value: str, read: object) -> Row:
    """Return the row of a global option that reaches the engine."""
    return [f"{name} {value}"], lambda c: getattr(c, name) == read and engine_settings(c, 0)[name] == (
        int(read) if isinstance(read, bool) else read)


def held(name: str, value: str, read: object, *before: str) -> Row:
    """Return the row of a global option that other parts use."""
    return [*before, f"{name} {value}"], lambda c: getattr(c, name) == read


def of_listener(name: str, value: str, read: object, before: list[str] = LISTENER, keyword: str = "") -> Row:
    return [*before, f"{keyword or name} {value}"], lambda c: (
        getattr(first(c), name) == read and engine_listeners(c)[0].get(name, read) == (
            int(read) if isinstance(read, bool) else read))


def of_bridge(name: str, value: str, read: object, *before: str, keyword: str = "") -> Row:
    return [*BRIDGE, *before, f"{keyword or name} {value}"], lambda c: getattr(c.bridges[0], name) == read


def warned(line: str, said: str, before: list[str] | None = None) -> Row:
    return [*(before or []), line], lambda c: sum(said in warning for warning in c.warnings) == 1


ROWS: dict[str, Row] = {
    # -- general
    "per_listener_settings": (["per_listener_settings true", "listener 1883", "acl_file /a", "listener 1884"],
                              lambda c: [s.acl_file for s in securities_of(c)] == ["/a", None]),
    "include_dir": (["include_dir {folder}"], lambda c: c.sys_interval == 77),
    "user": held("user", "nobody", "nobody"),
    "pid_file": held("pid_file", "/run/m q.pid", "/run/m q.pid"),
    "sys_interval": setting("sys_interval", "11", 11),
    "allow_duplicate_messages": setting("allow_duplicate_messages", "false", False),
    "check_retain_source": setting("check_retain_source", "true", True),
    "connection_messages": setting("connection_messages", "false", False),
    "clientid_prefixes": setting("clientid_prefixes", "dev-", "dev-"),
    "enable_control_api": held("enable_control_api", "true", True),
    "upgrade_outgoing_qos": setting("upgrade_outgoing_qos", "true", True),
    "set_tcp_nodelay": setting("set_tcp_nodelay", "false", False),
    "memory_limit": setting("memory_limit", "3000000000", 3_000_000_000),
    "message_size_limit": setting("message_size_limit", "0x100", 256),
    "max_packet_size": setting("max_packet_size", "2147483647", 268_435_455),
    "packet_buffer_size": setting("packet_buffer_size", "8192", 8192),
    "websockets_headers_size": (["websockets_headers_size 8192"],
                                lambda c: engine_settings(c, 0)["packet_buffer_size"] == 8192),
    "max_keepalive": setting("max_keepalive", "60", 60),
    "max_inflight_messages": setting("max_inflight_messages", "-1", 0),
    "max_inflight_bytes": setting("max_inflight_bytes", "1000", 1000),
    "max_queued_messages": setting("max_queued_messages", "5", 5),
    "max_queued_bytes": setting("max_queued_bytes", "7", 7),
    "queue_qos0_messages": setting("queue_qos0_messages", "1", True),
    "global_max_clients": setting("global_max_clients", "3", 3),
    "global_max_connections": setting("global_max_connections", "9", 9),
    "retain_available": setting("retain_available", "false", False),
    "retain_expiry_interval": held("retain_expiry_interval", "20000000", 10_000_000),
    "persistent_client_expiration": setting("persistent_client_expiration", "2w", 1_209_600),
    "retry_interval": warned("retry_interval", "The 'retry_interval' option is no longer available."),
    "dhparamfile": warned("dhparamfile /etc/dh.pem", "dhparamfile is no longer required."),
    # -- log
    "log_dest": (["log_dest file /var/log/a #b.log", "log_dest topic", "log_dest stderr"],
                 lambda c: c.log_dest == ("file /var/log/a #b.log", "topic", "stderr")),
    "log_type": (["log_type error  # only", "log_type debug"],
                 lambda c: log_mask(c) == LOG_TYPES["error"] | LOG_TYPES["debug"]),
    "log_facility": held("log_facility", "7", 7),
    "log_timestamp": held("log_timestamp", "false", False),
    "log_timestamp_format": held("log_timestamp_format", "%Y # %m", "%Y # %m"),
    "websockets_log_level": warned("websockets_log_level 255", "libwebsockets"),
    # -- persistence
    "persistence": held("persistence", "true", True),
    "retained_persistence": (["retained_persistence true"], lambda c: c.persistence),
    "persistence_location": held("persistence_location", "/var/lib/m/", "/var/lib/m/"),
    "persistence_file": held("persistence_file", "m.db", "m.db"),
    "autosave_interval": held("autosave_interval", "-3", 0),
    "autosave_on_changes": held("autosave_on_changes", "true", True),
    # -- access
    "allow_anonymous": ([*LISTENER, "allow_anonymous true"], lambda c: engine_listeners(c)[0]["allow_anonymous"] == 1),
    "allow_zero_length_clientid": (["allow_zero_length_clientid false"],
                                   lambda c: engine_listeners(c)[0]["allow_zero_length_clientid"] == 0),
    "auto_id_prefix": (["auto_id_prefix x-"], lambda c: engine_listeners(c)[0]["auto_id_prefix"] == "x-"),
    "acl_file": (["acl_file /a b"], lambda c: securities_of(c)[0].acl_file == "/a b"),
    "password_file": (["password_file /p"], lambda c: securities_of(c)[0].password_file == "/p"),
    "psk_file": (["psk_file /k"], lambda c: securities_of(c)[0].psk_file == engine_listeners(c)[0]["psk_file"] == "/k"),
    "plugin": (["plugin /usr/lib/mosquitto_password_file.so"],
               lambda c: securities_of(c)[0].plugins[0].kind == "password-file"),
    "auth_plugin": (["auth_plugin python:a.b:C"], lambda c: c.plugins[0].path == "python:a.b:C"),
    "global_plugin": (["per_listener_settings true", "global_plugin python:a:B", "listener 1883", "listener 1884"],
                      lambda c: [len(s.plugins) for s in securities_of(c)] == [1, 1]),
    "plugin_load": (["plugin_load p /x/acl-file.so", "plugin_opt_acl_file /a", *LISTENER],
                    lambda c: c.named_plugins["p"].option("acl_file") == "/a" and not c.plugins),
    "plugin_use": (["plugin_load p /x/acl_file.so", *LISTENER, "listener 1884", "plugin_use p"],
                   lambda c: [len(s.plugins) for s in securities_of(c)] == [0, 1]
                   and [spec["security"] for spec in engine_listeners(c)] == [0, 1]),
    "plugin_opt_": ([*PLUGIN, "plugin_opt_key  a  b # c"], lambda c: c.plugins[0].options == [("key", "a  b # c")]),
    "auth_opt_": ([*PLUGIN, "auth_opt_key v", "auth_opt_key w"], lambda c: c.plugins[0].option("key") == "w"),
    "auth_plugin_deny_special_chars": ([*PLUGIN, "auth_plugin_deny_special_chars false"],
                                       lambda c: not c.plugins[0].deny_special_chars),
    # -- listeners
    "listener": (["listener 1884 ::1 # why"], lambda c: (first(c).port, first(c).host) == (1884, "::1")),
    "port": (["port 1999"], lambda c: first(c).port == 1999 and not c.local_only),
    "bind_address": (["bind_address ::1"], lambda c: (first(c).port, first(c).host) == (1883, "::1")),
    "bind_interface": of_listener("bind_interface", "lo", "lo"),
    "socket_domain": of_listener("socket_domain", "ipv6", "ipv6"),
    "protocol": of_listener("protocol", "websockets # ws", "websockets"),
    "http_dir": ([*LISTENER, "protocol http_api", "http_dir {folder}", "listener 1884"],
                 lambda c: str(first(c).http_dir).endswith("/d") and [s["port"] for s in engine_listeners(c)] == [1884]),
    "accept_protocol_versions": ([*LISTENER, "accept_protocol_versions 3, 5"],
                                 lambda c: engine_listeners(c)[0]["versions"] == 0b101000),
    "listener_allow_anonymous": ([*LISTENER, "listener_allow_anonymous true", "listener 1884"],
                                 lambda c: [s["allow_anonymous"] for s in engine_listeners(c)] == [1, 0]),
    "listener_auto_id_prefix": ([*LISTENER, "listener_auto_id_prefix z-"],
                                lambda c: engine_listeners(c)[0]["auto_id_prefix"] == "z-"),
    "max_connections": of_listener("max_connections", "4", 4),
    "max_qos": of_listener("max_qos", "1", 1),
    "maximum_qos": of_listener("max_qos", "0", 0, keyword="maximum_qos"),
    "max_topic_alias": of_listener("max_topic_alias", "0", 0),
    "max_topic_alias_broker": of_listener("max_topic_alias_broker", "65535", 65535),
    "mount_point": of_listener("mount_point", "site/1/", "site/1/"),
    "use_username_as_clientid": of_listener("use_username_as_clientid", "true", True),
    "enable_proxy_protocol": of_listener("enable_proxy_protocol", "2", 2),
    "proxy_protocol_v2_require_tls": of_listener("proxy_protocol_v2_require_tls", "true", True),
    "websockets_origin": ([*LISTENER, "websockets_origin a.b", "websockets_origin c.d"],
                          lambda c: engine_listeners(c)[0]["websockets_origin"] == ("a.b", "c.d")),
    # -- TLS
    "cafile": of_listener("cafile", "/a", "/a", TLS),
    "capath": of_listener("capath", "/a", "/a", TLS),
    "certfile": of_listener("certfile", "/c # d", "/c # d", [*LISTENER, "keyfile /k"]),
    "keyfile": of_listener("keyfile", "/k", "/k", [*LISTENER, "certfile /c"]),
    "crlfile": of_listener("crlfile", "/r", "/r", TLS),
    "require_certificate": of_listener("require_certificate", "true", True, TLS),
    "disable_client_cert_date_checks": of_listener("disable_client_cert_date_checks", "true", True, TLS),
    "use_identity_as_username": of_listener("use_identity_as_username", "true", True, TLS),
    "use_subject_as_username": of_listener("use_subject_as_username", "true", True, TLS),
    "ciphers": of_listener("ciphers", "HIGH:!RC4", "HIGH:!RC4", TLS),
    "ciphers_tls1.3": of_listener("ciphers_tls1.3", "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", TLS),
    "tls_version": of_listener("tls_version", "tlsv1.3", "tlsv1.3", TLS),
    "tls_engine": warned("tls_engine pkcs11", "no longer supports engines", TLS),
    "tls_engine_kpass_sha1": warned("tls_engine_kpass_sha1 da39", "no longer supports engines", TLS),
    "tls_keyform": warned("tls_keyform engine", "no longer supports engines", TLS),
    "psk_hint": of_listener("psk_hint", "hint", "hint"),
    # -- bridges
    "connection": (["connection b # c", "address h", "topic #"], lambda c: c.bridges[0].name == "b"),
    "address": (["connection b", "address [::1]:1884 # c", "topic #"], lambda c: c.bridges[0].addresses == [("[::1]", 1884)]),
    "addresses": (["connection b", "addresses a b:1884", "topic #"],
                  lambda c: c.bridges[0].addresses == [("a", 1883), ("b", 1884)]),
    "topic": (["connection b", "address h", 'topic "a b/#" BOTH 2 "" r/ # why', 'topic "" in 1 x y'],
              lambda c: [t.key() for t in c.bridges[0].topics] == [("a b/#", "both", 2, "", "r/"), (None, "in", 1, "x", "y")]),
    "bridge_protocol_version": of_bridge("bridge_protocol_version", "mqttv50", "mqttv50"),
    "remote_clientid": of_bridge("remote_clientid", "a b", "a b"),
    "clientid": of_bridge("remote_clientid", "x", "x", keyword="clientid"),
    "remote_username": of_bridge("remote_username", "x", "x"),
    "username": of_bridge("remote_username", "x", "x", keyword="username"),
    "remote_password": of_bridge("remote_password", "x#y", "x#y"),
    "password": of_bridge("remote_password", "x", "x", keyword="password"),
    "local_clientid": of_bridge("local_clientid", "x", "x"),
    "local_username": of_bridge("local_username", "x", "x"),
    "local_password": of_bridge("local_password", "x", "x"),
    "cleansession": of_bridge("cleansession", "true", True),
    "local_cleansession": of_bridge("local_cleansession", "false", False),
    "start_type": of_bridge("start_type", "lazy", "lazy"),
    "restart_timeout": ([*BRIDGE, "restart_timeout 10 9000 60"],
                        lambda c: (c.bridges[0].restart_base_s, c.bridges[0].restart_cap_s,
                                   c.bridges[0].restart_stable_s) == (10, 7200, 60)),
    "idle_timeout": of_bridge("idle_timeout", "0", 1),
    "threshold": of_bridge("threshold", "3", 3),
    "keepalive_interval": of_bridge("keepalive_interval", "1", 5),
    "round_robin": of_bridge("round_robin", "true", True),
    "try_private": of_bridge("try_private", "false", False),
    "notifications": of_bridge("notifications", "false", False),
    "notifications_local_only": of_bridge("notifications_local_only", "true", True),
    "notification_topic": of_bridge("notification_topic", "a/b", "a/b"),
    "bridge_attempt_unsubscribe": of_bridge("bridge_attempt_unsubscribe", "false", False),
    "bridge_bind_address": of_bridge("bridge_bind_address", "127.0.0.1", "127.0.0.1"),
    "bridge_max_packet_size": of_bridge("bridge_max_packet_size", "100", 100),
    "bridge_max_topic_alias": of_bridge("bridge_max_topic_alias", "0", 0),
    "bridge_receive_maximum": of_bridge("bridge_receive_maximum", "5", 5),
    "bridge_session_expiry_interval": of_bridge("bridge_session_expiry_interval", "60", 60),
    "bridge_outgoing_retain": of_bridge("bridge_outgoing_retain", "false", False),
    "bridge_reload_type": of_bridge("bridge_reload_type", "immediate", "immediate"),
    "bridge_tcp_keepalive": of_bridge("tcp_keepalive_s", "60 10 5", (60, 10, 5), keyword="bridge_tcp_keepalive"),
    "bridge_tcp_user_timeout": of_bridge("bridge_tcp_user_timeout", "500", 500),
    "bridge_cafile": of_bridge("bridge_cafile", "/a", "/a"),
    "bridge_capath": of_bridge("bridge_capath", "/a", "/a"),
    "bridge_certfile": of_bridge("bridge_certfile", "/a", "/a"),
    "bridge_keyfile": of_bridge("bridge_keyfile", "/a", "/a"),
    "bridge_tls_version": of_bridge("bridge_tls_version", "tlsv1.2", "tlsv1.2"),
    "bridge_ciphers": of_bridge("bridge_ciphers", "HIGH", "HIGH"),
    "bridge_ciphers_tls1.3": of_bridge("bridge_ciphers_tls1.3", "X", "X"),
    "bridge_alpn": of_bridge("bridge_alpn", "mqtt", "mqtt"),
    "bridge_tls_use_os_certs": of_bridge("bridge_tls_use_os_certs", "true", True),
    "bridge_insecure": of_bridge("bridge_insecure", "true", True),
    "bridge_require_ocsp": of_bridge("bridge_require_ocsp", "true", True),
    "bridge_identity": of_bridge("bridge_identity", "me", "me", "bridge_psk 00"),
    "bridge_psk": of_bridge("bridge_psk", "00ff", "00ff", "bridge_identity me"),
}
