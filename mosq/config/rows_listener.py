"""The rows of the table of options that belong to a listener."""

from mosq.config.option import (
    INT32_MAX,
    LISTENER,
    LISTENER_ONLY,
    LISTENER_OR_DEFAULT,
    LISTENER_RESTART,
    LIVE,
    NEW,
    Option,
    choice,
    flag,
    number,
    text,
)

_ENGINE = "OpenSSL has done away with engines; use a key file"

L, N, D = LISTENER, LISTENER_ONLY, LISTENER_OR_DEFAULT

LISTENERS = (
    text("listener", L, "a port, and an address to bind; or 0 and the path of a unix socket", "special",
         reload=LISTENER_RESTART, label="listener port"),
    number("port", 1883, D, "the port of the default listener; better: listener", 1, 65535, reload=LISTENER_RESTART,
           deprecated="Please use 'listener' instead.", deprecated_by="listener"),
    text("bind_address", D, "the address of the default listener; better: listener", reload=LISTENER_RESTART, once=True,
         deprecated="", deprecated_by="listener", label="default listener bind_address"),
    text("bind_interface", D, "bind to this network device only", reload=LISTENER_RESTART, once=True),
    choice("socket_domain", "", D, "one address family only", ("ipv4", "ipv6"), reload=LISTENER_RESTART,
           said="Invalid 'socket_domain' value '{value}' in configuration."),
    choice("protocol", "mqtt", D, "what the listener speaks", ("mqtt", "websockets", "http_api"),
           reload=LISTENER_RESTART),
    text("http_dir", L, "a folder whose files a listener with `protocol http_api` serves", "path", once=True),
    Option("accept_protocol_versions", "words", ("3", "4", "5"), N,
           "3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0; separated by commas or blanks", choices=("3", "4", "5"), reload=NEW),
    flag("listener_allow_anonymous", None, L, "allow_anonymous for this listener"),
    choice("listener_durability", "", L, "durability of what this listener's clients publish; default: as for all",
           ("none", "async", "group", "strict"), own=True),
    text("listener_auto_id_prefix", L, "auto_id_prefix for this listener", high=50, reload=NEW, once=True),
    text("plugin_use", N, "uses a plugin that plugin_load named; may repeat", "special"),
    number("max_connections", -1, D, "connections to this listener at most; -1: no limit", -1, INT32_MAX, below=-1,
           reload=NEW),
    number("max_qos", 2, D, "the highest QoS that clients may publish with", 0, 2, aliases=("maximum_qos",),
           said="'max_qos' must be between 0 and 2 inclusive.", reload=LIVE),
    number("max_topic_alias", 10, L, "topic aliases that a client may use", 0, 65535, reload=NEW,
           said="Invalid 'max_topic_alias' value in configuration."),
    number("max_topic_alias_broker", 10, L, "topic aliases that the broker uses towards a client", 0, 65535,
           said="Invalid 'max_topic_alias_broker' value in configuration.", reload=NEW),
    text("mount_point", L, "put before every topic of this listener's clients; no wildcards"),
    flag("use_username_as_clientid", False, D, "the user name takes the place of the client id", reload=NEW),
    number("enable_proxy_protocol", 0, L, "the PROXY protocol's version, which every client must then speak; default: "
           "none", 1, 2, said="enable_proxy_protocol must be 1 or 2.", reload=LISTENER_RESTART),
    flag("proxy_protocol_v2_require_tls", False, L, "only clients that reached the proxy by TLS", reload=NEW),
    text("websockets_origin", L, "web pages that may connect; may repeat; default: all", "special", reload=NEW),
)

TLS = (
    text("cafile", L, "certificates of trusted authorities", "path", reload=NEW),
    text("capath", D, "a folder of them", "path", reload=NEW),
    text("certfile", D, "the broker's certificate and its chain", "path", reload=NEW),
    text("keyfile", D, "its key", "path", reload=NEW),
    text("crlfile", D, "revoked certificates", "path", reload=NEW),
    flag("require_certificate", False, D, "clients must show a certificate", reload=NEW),
    flag("disable_client_cert_date_checks", False, L, "accept expired client certificates", reload=NEW),
    flag("use_identity_as_username", False, D, "user names are the common names of certificates, or PSK identities",
         reload=NEW),
    flag("use_subject_as_username", False, D, "user names are the subjects of certificates", reload=NEW),
    text("ciphers", D, "OpenSSL's list of ciphers up to TLS 1.2", reload=NEW),
    text("ciphers_tls1.3", D, "the same for TLS 1.3; default: AES-128-GCM first", reload=NEW),
    text("tls_version", L, "the lowest TLS version: tlsv1.2 or tlsv1.3; default: tlsv1.2", reload=NEW, once=True),
    text("tls_engine", D, "an OpenSSL engine", ignored=_ENGINE, once=True),
    text("tls_engine_kpass_sha1", D, "its key's password", ignored=_ENGINE, once=True),
    choice("tls_keyform", "pem", D, "where the key is; engine: not supported", ("pem", "engine"), reload=NEW),
    text("psk_hint", D, "turns TLS-PSK on", reload=NEW, once=True),
)
