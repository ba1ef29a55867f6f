"""The rows of the table of options that belong to the broker as a whole, and to its security."""

from mosq.config.option import (
    GLOBAL,
    INT32_MAX,
    INT64_MAX,
    LIVE,
    NEVER_S,
    NEW,
    PACKET_MAX,
    PLUGIN,
    RESTART,
    SECURITY,
    UINT32_MAX,
    Option,
    choice,
    flag,
    number,
    text,
)

LOG_TYPES = {"error": 1, "warning": 2, "notice": 4, "information": 8, "debug": 16, "subscribe": 32, "unsubscribe": 64,
             "internal": 128, "websockets": 256}
# the first is the default
SHARED_STRATEGIES = ("round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client")
DURABILITIES = ("none", "async", "group", "strict")
LOG_DESTS = ("none", "stdout", "stderr", "syslog", "topic", "dlt", "android", "file PATH")

_AUTOSAVE = "every change is written at once (see durability), so that there is nothing to save now and then"

G, S = GLOBAL, SECURITY

GENERAL = (
    flag("per_listener_settings", False, G,
         "security options belong to the listener above them; must be set before them", reload=NEW,
         deprecated="Please see the documentation for how to achieve the same effect."),
    text("include_dir", G, "reads all files *.conf of a folder; main file only; may repeat", "special"),
    text("user", G, "the user to become when started as root; `root` stays root", default="mosquitto", reload=RESTART),
    text("pid_file", G, "where to write the process id", "path", reload=RESTART, once=True),
    number("sys_interval", 10, G, "time between updates of $SYS topics; 0: none", 0, 65535, unit="seconds"),
    flag("allow_duplicate_messages", True, G, "overlapping subscriptions get one copy each; false: one merged copy",
         deprecated="The behaviour will default to true."),
    flag("check_retain_source", False, G, "a retained message is sent only while its publisher may still write there"),
    flag("connection_messages", True, G, "log clients as they connect and disconnect"),
    text("clientid_prefixes", G, "only client ids that begin so may connect", reload=NEW, deprecated=""),
    flag("enable_control_api", False, G, "answers on $CONTROL/broker/v1 and $CONTROL/mosq/broker/v1"),
    flag("upgrade_outgoing_qos", False, G,
         "deliver with the QoS of the subscription even if the message has a lower one"),
    flag("set_tcp_nodelay", True, G, "send small packets at once (on by default here, unlike Mosquitto)", reload=NEW),
    number("memory_limit", 0, G, "refuse new messages above so much memory; 0: no limit", 0, INT64_MAX, unit="bytes"),
    number("message_size_limit", 0, G, "the largest payload; 0: no limit; better: max_packet_size", 0, PACKET_MAX,
           unit="bytes", deprecated_by="max_packet_size"),
    number("max_packet_size", 2_000_000, G, "the largest packet taken", 20, PACKET_MAX, above=PACKET_MAX, unit="bytes",
           said="'max_packet_size' must be >= 20."),
    number("packet_buffer_size", 4096, G, "the longest request head of a WebSocket client", 0, 65535, unit="bytes",
           said="Packet buffer size must be between 0 and 65535 inclusive.", aliases=("websockets_headers_size",),
           reload=NEW),
    number("max_keepalive", 0, G, "the longest keepalive a client may ask for; 0: any", 0, 65535, unit="seconds",
           reload=NEW),
    number("max_inflight_messages", 20, G, "QoS 1 and 2 messages in flight per client; 0: no limit", 0, 65535, below=0,
           said="'max_inflight_messages' must be <= 65535.", reload=NEW),
    number("max_inflight_bytes", 0, G, "their payload bytes; 0: no limit", 0, INT64_MAX, below=0, unit="bytes"),
    number("max_queued_messages", 1000, G, "messages waiting per client, above those in flight; 0: no limit", 0,
           INT32_MAX, below=0),
    number("max_queued_bytes", 0, G, "their payload bytes; 0: no limit", 0, INT64_MAX, below=0, unit="bytes"),
    number("queue_memory", 256 << 20, G, "what messages may take in memory: above, those that are on the disk wait "
           "for their turn there; 0: no limit", 0, INT64_MAX, unit="bytes", own=True, reload=LIVE),
    flag("queue_qos0_messages", False, G, "queue QoS 0 messages too for clients that are away"),
    number("global_max_clients", -1, G, "sessions at most; -1: no limit", -1, INT32_MAX, below=-1, reload=NEW),
    number("global_max_connections", -1, G, "connections at most; -1: no limit", -1, INT32_MAX, below=-1, reload=NEW),
    flag("retain_available", True, G, "take retained messages"),
    number("retain_expiry_interval", 0, G,
           "period of Mosquitto's sweep for expired retained messages; mosq removes each when it is due", 1, 10_000_000,
           above=10_000_000, unit="minutes", said="retain_expiry_interval must be >= 1."),
    Option("persistent_client_expiration", "duration", NEVER_S, G, "drop sessions of clients that were away so long",
           said="Invalid 'persistent_client_expiration' duration in configuration."),
    Option("retry_interval", "anything", None, G, "obsolete: messages are sent again after a reconnect only",
           ignored="The 'retry_interval' option is no longer available."),
    Option("dhparamfile", "anything", None, G, "obsolete: OpenSSL chooses the parameters",
           ignored="dhparamfile is no longer required."),
)

OWN = (
    flag("acl_refuse_subscribe", False, G, "refuse a SUBSCRIBE that the acl_file can never satisfy", own=True),
    choice("receive_maximum_policy", "log", G, "what happens to a client that exceeds receive maximum",
           ("log", "disconnect"), own=True),
    number("max_output_bytes", 64 << 20, G, "unsent output a client may hold before it is dropped", 65536, INT32_MAX,
           unit="bytes", own=True),
    number("max_topic_levels", 200, G, "levels of a topic or filter at most", 1, 200, own=True),
    number("connect_timeout", 20, G, "time for a connection's first CONNECT", 1, 3600, unit="seconds", own=True,
           reload=NEW),
    number("turn_budget", 200_000, G, "work done for one client before others get their turn", 1000, INT32_MAX,
           unit="deliveries; the first to a connection counts 50", own=True),
    # -- passwords and plugins
    number("auth_timeout", 10, G, "time for a plugin or a password file to decide, before the client is refused", 1,
           300, unit="seconds", own=True),
    number("auth_threads", 0, G, "threads that check passwords; 0: as many as there are processor cores", 0, 64,
           own=True, reload=RESTART),
    number("auth_cache_size", 10_000, G, "logins that are remembered so that their passwords are not hashed again", 0,
           1 << 24, own=True),
    number("auth_cache_seconds", 300, G, "how long; 0: not at all", 0, 86_400, unit="seconds", own=True),
    flag("auth_backoff", True, G, "who fails to log in again and again waits longer for each answer, by address",
         own=True),
    # -- the index and the pool of clients, see docs/index.md. Also flags of the command line: TUNING
    choice("index", "full", G, "how filters are found: full, by hash and in a tree; the others leave parts out, for "
           "comparison", ("full", "letter", "hash", "tree", "scan"), own=True, reload=RESTART),
    choice("letter_index", "", G, "27: one part for each first letter; off: one for all; default: as index says",
           ("27", "off"), own=True, reload=RESTART),
    number("hash_buckets", 0, G, "buckets that each hash table has from the start: memory for fewer moves; 0: as many "
           "as it needs", 0, 1 << 24, own=True, reload=RESTART),
    Option("child_hash_threshold", "count", 9, G, "a level with so many names finds them by hash; fewer are compared, "
           "which takes less memory; off: always compared", low=1, high=UINT32_MAX, own=True, reload=RESTART),
    Option("match_cache", "count", 131_072, G, "topics whose subscribers are remembered at most, with index full; 200 "
           "bytes each, taken as topics repeat; off: none", low=1, high=1 << 20, own=True, reload=RESTART),
    choice("pool", "on", G, "keep the memory of clients that left for those that come; off: the system's allocator for "
           "each", ("on", "off"), own=True, reload=RESTART),
    number("pool_grow", 1000, G, "clients by which the pool grows at a time", 1, 1 << 20, own=True, reload=RESTART),
    number("pool_idle_max", 10_000, G, "clients' memory kept idle at most; above it goes back to the system", 0,
           1 << 24, own=True, reload=RESTART),
    choice("queue_overflow", "drop_newest", G, "what goes when a queue is full: drop_newest, as in Mosquitto; "
           "drop_oldest; last_value: of each topic only the newest waits, whether it is full or not",
           ("drop_newest", "drop_oldest", "last_value"), own=True),
    Option("shared_strategy", "words", (), G, "how shared groups choose the member for a message; with a group's name: "
           "for groups of that name; may repeat, up to 1000 lines", choices=SHARED_STRATEGIES, own=True),
)

LOG = (
    Option("log_dest", "words", (), G, "where the log goes; may repeat; default: stderr", choices=LOG_DESTS),
    Option("log_type", "words", (), G, "what is logged; may repeat; default: error, warning, notice, information",
           choices=("none", *LOG_TYPES, "all")),
    number("log_facility", -1, G, "the syslog facility local0 to local7; default: daemon", 0, 7),
    flag("log_timestamp", True, G, "begin log lines with the time"),
    text("log_timestamp_format", G, "strftime format of that time; default: seconds since 1970", once=True),
    choice("log_format", "text", G, "text: Mosquitto's lines; json: one object a line, with level and client",
           ("text", "json"), own=True),
    number("log_denied_per_second", 10, G, "denied publishes and subscribes that are logged at notice at most; 0: none",
           0, 100_000, unit="lines a second", own=True),
    Option("websockets_log_level", "anything", None, G, "ignored: it is for libwebsockets, which is not used here",
           ignored="it is for libwebsockets, which mosq does not use"),
)

PERSISTENCE = (
    flag("persistence", False, G, "keep sessions, what they are owed, and retained messages over a restart, also over "
         "kill -9", aliases=("retained_persistence",), reload=RESTART),
    text("persistence_location", G, "the folder of the store; default: where the broker was started", "path",
         once=True, reload=RESTART),
    text("persistence_file", G, "the store is a folder with this name and `.store` after it", default="mosquitto.db",
         once=True, reload=RESTART),
    choice("durability", "group", G, "none: in memory; async: written within durability_interval; group: written "
           "before it is acknowledged, safe from kill -9; strict: on the disk before, safe from a power loss",
           DURABILITIES, own=True, reload=RESTART),
    Option("durability_topic", "words", (), G, "LEVEL FILTER: durability of what is published to these topics; the "
           "first that matches; may repeat, up to 64 lines", choices=DURABILITIES, own=True, reload=LIVE),
    number("durability_interval", 2, G, "how long changes are gathered, at most, before they are written together", 0,
           1000, unit="milliseconds", own=True, reload=RESTART),
    Option("stream", "string", (), G, "NAME FILTER... [shards N] [retain_age TIME] [retain_bytes SIZE]: what is "
           "published to these topics goes into a journal, which anybody may read; needs persistence true; may repeat, "
           "up to 32 lines. See journal.md", own=True, reload=RESTART),
    Option("stream_events", "words", (), G, "who connects, subscribes, goes, and what is dropped goes into the stream "
           "`events`; behind true: [retain_age TIME] [retain_bytes SIZE], 1G where none is said; needs persistence "
           "true; default: false", choices=("true", "false"), own=True, reload=RESTART),
    number("autosave_interval", 1800, G, "time, or changes, between saves", 0, INT32_MAX, below=0, unit="seconds",
           ignored=_AUTOSAVE),
    flag("autosave_on_changes", False, G, "autosave_interval counts changes", ignored=_AUTOSAVE),
)

ACCESS = (
    flag("allow_anonymous", None, S, "let clients in without a user name; default: only in local only mode"),
    flag("allow_zero_length_clientid", True, S, "make up a client id for clients that send none", reload=NEW),
    text("auto_id_prefix", S, "how made up client ids begin; up to 50 bytes", default="auto-", high=50, once=True,
         reload=NEW, deprecated="Please use 'listener_auto_id_prefix' instead.",
         deprecated_by="listener_auto_id_prefix"),
    text("acl_file", S, "who may read and write which topics", "path", reload=LIVE),
    text("password_file", S, "users and passwords", "path"),
    Option("dynamic_security", "special", None, G, "the file of clients, groups and roles that commands change, as of "
           "the plugin dynamic-security, whose options may follow", own=True),
    text("psk_file", S, "identities and keys of TLS-PSK", "path", reload=NEW),
    text("plugin", S, "a plugin: one of those that are built in, by its file name, or python:package.module:Class; may "
         "repeat", "path", aliases=("auth_plugin",)),
    text("global_plugin", G, "a plugin for all listeners, also under per_listener_settings; may repeat", "path"),
    text("plugin_load", G, "a plugin with a name, NAME PATH, for plugin_use; may repeat", "special"),
    text("plugin_opt_", PLUGIN, "an option of the plugin above; may repeat", prefix=True, aliases=("auth_opt_",)),
    flag("auth_plugin_deny_special_chars", True, PLUGIN, "refuse + # / in names before asking a plugin"),
)
