"""Every option of ``mosquitto.conf``, declared once: parser, checks, help and tests all follow from this table.

An option is in one of three states: in force; absent and refused, because to go on without it would weaken security or
lose data (then a value other than the default is an error); absent with a warning, because the broker does its job all
the same.

No `typing`, `dataclasses` or `enum` at run time, here and in all that runs before the broker listens: each costs 5 to
15 ms of the 100 ms that there are.
"""

Default = bool | int | str | tuple[str, ...] | None

GLOBAL = "global"
LISTENER = "listener"               # needs a `listener` line above it
LISTENER_OR_DEFAULT = "listener*"   # or makes the default listener on port 1883
SECURITY = "security"               # global, or of a listener under per_listener_settings true
BRIDGE = "bridge"                   # inside a `connection` block
PLUGIN = "plugin"                   # after a plugin line

NEVER_S = -1                        # durations: never
INT32_MAX = 2**31 - 1
UINT16_MAX = 65535
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
PACKET_MAX = 268_435_455            # [v5 2.1.4] the largest remaining length

LOG_TYPES = {"error": 1, "warning": 2, "notice": 4, "information": 8, "debug": 16, "subscribe": 32, "unsubscribe": 64,
             "internal": 128, "websockets": 256}
LOG_ALL = 511
# the first is the default
SHARED_STRATEGIES = ("round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client")
SHARED_LINES_MAX = 1000
BOOL_WORDS = {"true": True, "1": True, "false": False, "0": False}


class Absent:
    """How this version does without an option."""

    __slots__ = ("effect", "instead")

    def __init__(self, effect: str, instead: str) -> None:
        self.effect = effect            # "refuse" or "warn"
        self.instead = instead          # what to write, or what it means


class Option:
    """A row of the table."""

    __slots__ = ("name", "kind", "default", "scope", "help", "low", "high", "choices", "unit", "aliases", "reloadable",
                 "absent", "own", "prefix", "since")

    def __init__(self, name: str, kind: str, default: Default, scope: str, help: str, low: int = 0,
                 high: int = INT32_MAX, choices: tuple[str, ...] = (), unit: str = "", aliases: tuple[str, ...] = (),
                 reloadable: bool = False, absent: Absent | None = None, own: bool = False, prefix: bool = False,
                 since: str = "0.1.0") -> None:
        self.name = name
        self.kind = kind                # bool, int, count (0 is off), string, path, duration, enum, words, special
        self.default = default
        self.scope = scope
        self.help = help
        self.low = low                  # int
        self.high = high                # int; characters of a string
        self.choices = choices          # enum, words
        self.unit = unit
        self.aliases = aliases
        self.reloadable = reloadable    # by SIGHUP, as the manual promises; the reload itself is a later work
        self.absent = absent            # None: in force now
        self.own = own                  # of mosq, unknown to Mosquitto
        self.prefix = prefix            # the name is the beginning of a keyword
        self.since = since              # the first mosq that knows it

    @property
    def work(self) -> str:
        """Which work brings it: "A" is in force now."""
        return "A" if self.absent is None else "later"

    def expected(self) -> str:
        """What a value must look like, for messages and documentation."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "int":
            return f"a number from {self.low} to {self.high}" + (f" ({self.unit})" if self.unit else "")
        if self.kind == "count":
            return f"a number from {self.low} to {self.high}, or off"
        if self.kind == "duration":
            return "a number with a unit s, h, d, w, m or y (seconds to years), such as 14d"
        if self.kind in ("enum", "words"):
            several = "one or more of " if self.kind == "words" else "one of "
            return several + ", ".join(self.choices)
        return "a path" if self.kind == "path" else "some text"


def _bool(name: str, default: bool | None, scope: str, help: str, *, absent: Absent | None = None,
          reloadable: bool = False, aliases: tuple[str, ...] = (), own: bool = False) -> Option:
    return Option(name, "bool", default, scope, help, absent=absent, reloadable=reloadable, aliases=aliases, own=own)


def _int(name: str, default: int, scope: str, help: str, low: int, high: int, *, unit: str = "",
         absent: Absent | None = None, reloadable: bool = False, aliases: tuple[str, ...] = (),
         own: bool = False) -> Option:
    return Option(name, "int", default, scope, help, low, high, (), unit, aliases, reloadable, absent, own)


def _text(name: str, scope: str, help: str, kind: str = "string", *, default: str | None = None, high: int = UINT16_MAX,
          absent: Absent | None = None, reloadable: bool = False, aliases: tuple[str, ...] = (),
          prefix: bool = False) -> Option:
    return Option(name, kind, default, scope, help, 0, high, (), "", aliases, reloadable, absent, False, prefix)


_LATER = Absent("warn", "")
_SAVE = Absent("warn", "sessions and retained messages live in memory only")
_PERSISTENCE = Absent("warn", "SESSIONS, QUEUED AND RETAINED MESSAGES LIVE IN MEMORY ONLY and end with the broker")
_OBSOLETE = Absent("warn", "obsolete; remove the line")
_TLS = Absent("refuse", "terminate TLS in front of mosq, with stunnel or HAProxy for example, and let mosq listen "
                        "on 127.0.0.1")
_PASSWORDS = Absent("refuse", "decide by `bind_address`, `listener PORT ADDRESS` or a firewall who can connect, and "
                              "remove this line")
_PLUGIN = Absent("refuse", "remove the lines of the plugin; rules in an acl_file are in force")
_WEB = Absent("refuse", "write `protocol mqtt`, and put a proxy that speaks WebSocket in front of it if browsers "
                        "need one")
_PROXY = Absent("refuse", "let the proxy connect without the PROXY header and remove this line")
_BRIDGE = Absent("refuse", "remove the `connection` block")

G, L, D, S, B = GLOBAL, LISTENER, LISTENER_OR_DEFAULT, SECURITY, BRIDGE

OPTIONS: tuple[Option, ...] = (
    # -- general
    _bool("per_listener_settings", False, G,
          "security options belong to the listener above them; must be set before them"),
    _text("include_dir", G, "reads all files *.conf of a folder; main file only", "special", reloadable=True),
    _text("user", G, "the user to become when started as root; `root` stays root", default="mosquitto"),
    _text("pid_file", G, "where to write the process id", "path"),
    _int("sys_interval", 10, G, "time between updates of $SYS topics; 0: none", 0, 65535, unit="seconds",
         reloadable=True),
    _bool("allow_duplicate_messages", True, G, "overlapping subscriptions get one copy each; false: one merged copy",
          reloadable=True),
    _bool("check_retain_source", False, G, "a retained message is sent only while its publisher may still write there"),
    _bool("connection_messages", True, G, "log clients as they connect and disconnect", reloadable=True),
    _text("clientid_prefixes", G, "only client ids that begin so may connect", reloadable=True),
    _bool("enable_control_api", False, G, "answers on $CONTROL/broker/v1", absent=_LATER),
    _bool("upgrade_outgoing_qos", False, G,
          "deliver with the QoS of the subscription even if the message has a lower one", reloadable=True),
    _bool("set_tcp_nodelay", True, G, "send small packets at once (on by default here, unlike Mosquitto)"),
    _int("memory_limit", 0, G, "refuse new messages above so much memory; 0: no limit", 0, INT64_MAX, unit="bytes",
         reloadable=True),
    _int("message_size_limit", 0, G, "the largest payload; 0: no limit", 0, PACKET_MAX, unit="bytes", reloadable=True),
    _int("max_packet_size", 2_000_000, G, "the largest packet taken", 20, PACKET_MAX, unit="bytes", reloadable=True),
    _int("packet_buffer_size", 4096, G, "ignored: buffers grow as needed", 0, 65535, unit="bytes",
         aliases=("websockets_headers_size",), absent=_LATER),
    _int("max_keepalive", 0, G, "the longest keepalive a client may ask for; 0: any", 0, 65535, unit="seconds",
         reloadable=True),
    _int("max_inflight_messages", 20, G, "QoS 1 and 2 messages in flight per client; 0: no limit", 0, 65535,
         reloadable=True),
    _int("max_inflight_bytes", 0, G, "their payload bytes; 0: no limit", 0, INT64_MAX, unit="bytes", reloadable=True),
    _int("max_queued_messages", 1000, G, "messages waiting per client, above those in flight; 0: no limit", 0,
         INT32_MAX, reloadable=True),
    _int("max_queued_bytes", 0, G, "their payload bytes; 0: no limit", 0, INT64_MAX, unit="bytes", reloadable=True),
    _bool("queue_qos0_messages", False, G, "queue QoS 0 messages too for clients that are away", reloadable=True),
    _int("global_max_clients", -1, G, "sessions at most; -1: no limit", -1, INT32_MAX, reloadable=True),
    _int("global_max_connections", -1, G, "connections at most; -1: no limit", -1, INT32_MAX, reloadable=True),
    _bool("retain_available", True, G, "take retained messages", reloadable=True),
    _int("retain_expiry_interval", 0, G,
         "period of Mosquitto's sweep for expired retained messages; mosq removes each when it is due", 0, 10_000_000,
         unit="minutes", reloadable=True),
    Option("persistent_client_expiration", "duration", NEVER_S, G, "drop sessions of clients that were away so long",
           reloadable=True),
    _text("retry_interval", G, "obsolete: messages are sent again after a reconnect only", absent=_OBSOLETE),
    _text("dhparamfile", L, "obsolete: OpenSSL chooses the parameters", "path", absent=_OBSOLETE),
    # -- of mosq's own, each neutral unless set
    _bool("acl_refuse_subscribe", False, G, "refuse a SUBSCRIBE that the acl_file can never satisfy", own=True),
    Option("receive_maximum_policy", "enum", "log", G, "what happens to a client that exceeds receive maximum",
           choices=("log", "disconnect"), own=True),
    _int("max_output_bytes", 64 << 20, G, "unsent output a client may hold before it is dropped", 65536, INT32_MAX,
         unit="bytes", own=True),
    _int("max_topic_levels", 200, G, "levels of a topic or filter at most", 1, 200, own=True),
    _int("connect_timeout", 20, G, "time for a connection's first CONNECT", 1, 3600, unit="seconds", own=True),
    _int("turn_budget", 200_000, G, "work done for one client before others get their turn", 1000, INT32_MAX,
         unit="deliveries; the first to a connection counts 50", own=True),
    # -- of mosq's own: the index and the pool of clients, see docs/index.md. Also flags of the command line: TUNING
    Option("index", "enum", "full", G, "how filters are found: full, by hash and in a tree; the others leave parts "
           "out, for comparison", choices=("full", "letter", "hash", "tree", "scan"), own=True),
    Option("letter_index", "enum", "", G, "27: one part for each first letter; off: one for all; default: as index "
           "says", choices=("27", "off"), own=True),
    _int("hash_buckets", 0, G, "buckets that each hash table has from the start: memory for fewer moves; 0: as many as "
         "it needs", 0, 1 << 24, own=True),
    Option("child_hash_threshold", "count", 9, G, "a level with so many names finds them by hash; fewer are compared, "
           "which takes less memory; off: always compared", 1, UINT32_MAX, own=True),
    Option("match_cache", "count", 131_072, G, "topics whose subscribers are remembered at most, with index full; 200 "
           "bytes each, taken as topics repeat; off: none", 1, 1 << 20, own=True),
    Option("pool", "enum", "on", G, "keep the memory of clients that left for those that come; off: the system's "
           "allocator for each", choices=("on", "off"), own=True),
    _int("pool_grow", 1000, G, "clients by which the pool grows at a time", 1, 1 << 20, own=True),
    _int("pool_idle_max", 10_000, G, "clients' memory kept idle at most; above it goes back to the system", 0, 1 << 24,
         own=True),
    Option("shared_strategy", "words", (), G, "how shared groups choose the member for a message; with a group's name: "
           "for groups of that name; may repeat, up to 1000 lines", choices=SHARED_STRATEGIES, own=True),
    # -- log
    Option("log_dest", "words", (), G, "where the log goes; may repeat",
           choices=("none", "stdout", "stderr", "syslog", "topic", "dlt",
                     "android", "file PATH"), reloadable=True),
    Option("log_type", "words", (), G, "what is logged; may repeat", choices=("none", *LOG_TYPES, "all"),
           reloadable=True),
    _int("log_facility", -1, G, "syslog's facility: 0 to 7 for local0 to local7; default: daemon", 0, 7,
         reloadable=True),
    Option("log_format", "enum", "text", G, "lines as Mosquitto writes them, or a JSON object each",
           choices=("text", "json"), reloadable=True, own=True),
    _bool("log_timestamp", True, G, "begin log lines with the time", reloadable=True),
    _text("log_timestamp_format", G, "strftime format of that time; default: seconds since 1970", reloadable=True),
    _int("websockets_log_level", 0, G, "ignored: there is no libwebsockets here", 0, INT32_MAX, absent=_LATER),
    # -- persistence. Real files carry `persistence true` (37 of the 71 in our corpus), and a broker that does not
    # start is a worse loss than one that starts empty, as Mosquitto does when its file is gone. It must not be silent:
    # a warning at each start.
    _bool("persistence", False, G, "keep sessions and retained messages over a restart",
          aliases=("retained_persistence",),
          absent=_PERSISTENCE),
    _text("persistence_location", G, "the folder of its file", "path", absent=_SAVE),
    _text("persistence_file", G, "the name of its file", default="mosquitto.db", absent=_SAVE),
    _int("autosave_interval", 1800, G, "time, or changes, between saves", 0, INT32_MAX, unit="seconds", absent=_SAVE),
    _bool("autosave_on_changes", False, G, "autosave_interval counts changes", absent=_SAVE),
    # -- access
    _bool("allow_anonymous", None, S, "let clients in without a user name; default: only in local only mode",
          reloadable=True),
    _bool("allow_zero_length_clientid", True, S, "make up a client id for clients that send none", reloadable=True),
    _text("auto_id_prefix", S, "how made up client ids begin; up to 50 characters", default="auto-", high=50,
          reloadable=True),
    _text("acl_file", S, "who may read and write which topics", "path", reloadable=True),
    _text("password_file", S, "users and passwords", "path", absent=_PASSWORDS),
    _text("psk_file", S, "identities and keys of TLS-PSK", "path", absent=_PASSWORDS),
    _text("plugin", S, "a plugin", "path", aliases=("auth_plugin",), absent=_PLUGIN),
    _text("global_plugin", G, "a plugin for all listeners", "path", absent=_PLUGIN),
    _text("plugin_load", G, "a plugin with a name", absent=_PLUGIN),
    _text("plugin_use", L, "uses a named plugin", absent=_PLUGIN),
    _text("plugin_opt_", PLUGIN, "an option of the plugin above", prefix=True, aliases=("auth_opt_",), absent=_PLUGIN),
    _bool("auth_plugin_deny_special_chars", True, PLUGIN, "refuse + # / in names before asking a plugin",
          absent=_PLUGIN),
    # -- listeners
    _text("listener", L, "a port, and an address to bind; or 0 and the path of a unix socket", "special"),
    _int("port", 1883, D, "the port of the default listener; better: listener", 1, 65535),
    _text("bind_address", D, "the address of the default listener; better: listener"),
    _text("bind_interface", D, "bind to this network device only"),
    Option("socket_domain", "enum", "", D, "one address family only", choices=("ipv4", "ipv6")),
    Option("protocol", "enum", "mqtt", D, "what the listener speaks", choices=("mqtt", "websockets", "http_api"),
           absent=_WEB),
    _text("http_dir", L, "files served by the dashboard", "path", absent=_LATER),
    Option("accept_protocol_versions", "words", ("3", "4", "5"), L,
           "3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0; separated by commas",
           choices=("3", "4", "5"), reloadable=True),
    _bool("listener_allow_anonymous", None, L, "allow_anonymous for this listener", reloadable=True),
    _text("listener_auto_id_prefix", L, "auto_id_prefix for this listener", high=50, reloadable=True),
    _int("max_connections", -1, D, "connections to this listener at most; -1: no limit", -1, INT32_MAX,
         reloadable=True),
    _int("max_qos", 2, D, "the highest QoS that clients may publish with", 0, 2, aliases=("maximum_qos",),
         reloadable=True),
    _int("max_topic_alias", 10, L, "topic aliases that a client may use", 0, 65535, reloadable=True),
    _int("max_topic_alias_broker", 10, L, "topic aliases that the broker uses towards a client", 0, 65535,
         reloadable=True),
    _text("mount_point", L, "put before every topic of this listener's clients; no wildcards", reloadable=True),
    _bool("use_username_as_clientid", False, D, "the user name takes the place of the client id", reloadable=True),
    _int("enable_proxy_protocol", 0, L, "the PROXY protocol's version", 0, 2, absent=_PROXY),
    _bool("proxy_protocol_v2_require_tls", False, L, "only clients that reached the proxy by TLS", absent=_PROXY),
    _text("websockets_origin", L, "web pages that may connect; may repeat", absent=_WEB),
    # -- TLS
    _text("cafile", L, "certificates of trusted authorities", "path", absent=_TLS),
    _text("capath", D, "a folder of them", "path", absent=_TLS),
    _text("certfile", D, "the broker's certificate", "path", absent=_TLS),
    _text("keyfile", D, "its key", "path", absent=_TLS),
    _text("crlfile", D, "revoked certificates", "path", absent=_TLS),
    _bool("require_certificate", False, D, "clients must show a certificate", absent=_TLS),
    _bool("disable_client_cert_date_checks", False, L, "accept expired client certificates", absent=_TLS),
    _bool("use_identity_as_username", False, D, "user names come from certificates", absent=_TLS),
    _bool("use_subject_as_username", False, D, "user names are subjects of certificates", absent=_TLS),
    _text("ciphers", D, "OpenSSL cipher list", absent=_TLS),
    _text("ciphers_tls1.3", D, "the same for TLS 1.3", absent=_TLS),
    _text("tls_version", L, "the lowest TLS version", absent=_TLS),
    _text("tls_engine", D, "an OpenSSL engine", absent=_TLS),
    _text("tls_engine_kpass_sha1", D, "its key's password", absent=_TLS),
    Option("tls_keyform", "enum", "pem", D, "where the key is", choices=("pem", "engine"), absent=_TLS),
    _text("psk_hint", D, "turns TLS-PSK on", absent=_TLS),
    # -- bridges: `connection` is refused, so what belongs into its block is only ever met outside of one
    _text("connection", G, "a bridge to another broker", "special", absent=_BRIDGE),
    *(_text(name, B, "of a bridge", aliases=aliases, absent=_BRIDGE) for name, aliases in (
        ("address", ("addresses",)), ("topic", ()), ("bridge_protocol_version", ()), ("remote_clientid", ("clientid",)),
        ("remote_username", ("username",)), ("remote_password", ("password",)), ("local_clientid", ()),
        ("local_username", ()),
        ("local_password", ()), ("cleansession", ()), ("local_cleansession", ()), ("start_type", ()),
        ("restart_timeout", ()),
        ("idle_timeout", ()), ("threshold", ()), ("keepalive_interval", ()), ("round_robin", ()), ("try_private", ()),
        ("notifications", ()), ("notifications_local_only", ()), ("notification_topic", ()),
        ("bridge_attempt_unsubscribe", ()),
        ("bridge_bind_address", ()), ("bridge_max_packet_size", ()), ("bridge_max_topic_alias", ()),
        ("bridge_receive_maximum", ()),
        ("bridge_session_expiry_interval", ()), ("bridge_outgoing_retain", ()), ("bridge_reload_type", ()),
        ("bridge_tcp_keepalive", ()), ("bridge_tcp_user_timeout", ()), ("bridge_cafile", ()), ("bridge_capath", ()),
        ("bridge_certfile", ()), ("bridge_keyfile", ()), ("bridge_tls_version", ()), ("bridge_ciphers", ()),
        ("bridge_ciphers_tls1.3", ()), ("bridge_alpn", ()), ("bridge_tls_use_os_certs", ()), ("bridge_insecure", ()),
        ("bridge_require_ocsp", ()), ("bridge_identity", ()), ("bridge_psk", ()))),
)

TUNING = ("index", "letter_index", "hash_buckets", "child_hash_threshold", "match_cache", "pool", "pool_grow",
          "pool_idle_max")

BY_KEYWORD: dict[str, Option] = {keyword: option for option in OPTIONS for keyword in (option.name, *option.aliases)}
_PREFIXES = tuple((keyword, option) for keyword, option in BY_KEYWORD.items() if option.prefix)


def find_option(keyword: str) -> Option | None:
    """The option that a keyword names, or None."""
    option = BY_KEYWORD.get(keyword)
    if option is not None and not option.prefix:
        return option
    for prefix, prefixed in _PREFIXES:
        if keyword.startswith(prefix) and len(keyword) > len(prefix):
            return prefixed
    return None
