"""Rows of the option table for the broker as a whole and for its security."""

from mosq.config.options.option import (
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
from mosq.log_types import LOG_TYPES

# The first strategy is the default.
SHARED_STRATEGIES = ("round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client")
DURABILITIES = ("none", "async", "group", "strict")
LOG_DESTS = ("none", "stdout", "stderr", "syslog", "topic", "dlt", "android", "file PATH")


G, S = GLOBAL, SECURITY

GENERAL = (
    flag("per_listener_settings", False, G,
         "If true, security options apply to the listener above them. Set it before them", reload=NEW,
         deprecated="Please see the documentation for how to achieve the same effect."),
    text("include_dir", G, "Reads all files *.conf of this folder. Allowed in the main file only; may be repeated",
         "special"),
    text("user", G, "User that the broker becomes when it is started as root; `root` stays root", default="mosquitto",
         reload=RESTART),
    text("pid_file", G, "File into which the broker writes its process id", "path", reload=RESTART, once=True),
    number("cluster_local", 1, G,
           "Number of worker processes that serve the clients, behind the same listeners, so that several processor "
           "cores are used. 1 is one process for everything. The option --workers of the command line is the same. "
           "See docs/workers.md for what it means for other options", 1, 64, own=True,
           reload=RESTART, exact=True),
    number("cluster_watchdog", 10, G,
           "Seconds within which a worker must show that it works; otherwise it is killed and started again. Only with "
           "cluster_local and cluster", 1, 3600, unit="seconds", own=True, reload=RESTART),
    text("cluster", G,
         "Address of the Redis of a cluster, of which this broker is a node: "
         "redis://[USER:PASSWORD@]HOST[:PORT][,HOST...][/DB] or redis+sentinel://HOST,.../NAME[/DB]. Needs "
         "cluster_node and persistence true. See docs/cluster.md",
         own=True, reload=RESTART, once=True),
    text("cluster_name", G, "Name of the cluster in Redis, the same on all nodes", default="mosq", own=True,
         reload=RESTART, once=True),
    text("cluster_node", G, "Name of this node, another one on each node of a cluster", own=True, reload=RESTART,
         once=True),
    text("cluster_listener", G,
         "PORT [ADDRESS] for the connections of other workers: worker W listens on PORT + W - 1. Without this line the "
         "workers are linked on this machine only. Needs cluster_secret_file", own=True, reload=RESTART, once=True),
    text("cluster_secret_file", G,
         "File with the secret of the cluster, at least 32 bytes, the same on all nodes. Not all users may read it",
         "path", own=True, reload=RESTART, once=True),
    text("cluster_password_file", G,
         "File whose first line is the password of Redis, so that the address in cluster has none. Not all users "
         "should read it", "path", own=True, reload=RESTART, once=True),
    number("cluster_capacity", 1, G,
           "Part of the workers of a cluster that this node runs, in proportion to the numbers of the other nodes", 1,
           1000, own=True, reload=RESTART),
    text("cluster_reference", G,
         "Server Reference, as HOST:PORT or several with a space between them: MQTT 5 clients get it when their worker "
         "moves to another node", high=1024, own=True, reload=RESTART, once=True),
    number("route_timeout", 10, G,
           "Seconds within which all workers must know the filters of a SUBSCRIBE; otherwise it is refused with 0x97 "
           "(0x80 to 3.x clients). Only with cluster_local", 1, 3600, unit="seconds", own=True),
    number("link_memory", 256 << 20, G,
           "Bytes of QoS 1 and 2 messages that may wait for one other worker. Above it, messages for that worker are "
           "refused with 0x97; a 3.x client waits until there is room. Only with cluster_local", 1 << 20,
           INT64_MAX, unit="bytes", own=True, reload=RESTART),
    number("sys_interval", 10, G, "Seconds between updates of the $SYS topics; 0 disables $SYS", 0, 65535,
           unit="seconds"),
    number("observe_messages", 0, G,
           "Measure one message in this many, for the histograms of `/metrics`: its match, and its wait until a "
           "subscriber has it; also turns, batches of the store and TLS handshakes. 64 is a good value; 0 measures "
           "nothing", 0, 1_000_000, own=True),
    flag("allow_duplicate_messages", True, G,
         "If true, a client with overlapping subscriptions receives one copy per subscription. If false, it receives "
         "one merged copy", deprecated="The behaviour will default to true."),
    flag("compat", False, G,
         "Do as Mosquitto does also where the standard asks for something else: reason codes, wills at a take-over, "
         "answers to WebSocket handshakes, PROXY headers. "
         "The page docs/differences.md names each place. The option --compat of the command line is the same",
         own=True),
    choice("takeover_will", "v5", G,
           "Send the will of a client whose session a new connection takes over and continues: for clients with MQTT "
           "5.0 (v5), for all, or for none, as Mosquitto does. A will with a delay is not sent in any case",
           ("none", "v5", "all"), own=True),
    flag("check_retain_source", False, G,
         "Send a retained message only while its publisher may still write to the topic"),
    flag("connection_messages", True, G, "Log clients when they connect and disconnect"),
    text("clientid_prefixes", G, "Only clients whose client id begins with this text may connect", reload=NEW,
         deprecated=""),
    flag("enable_control_api", False, G, "Answer control commands on $CONTROL/broker/v1 and $CONTROL/mosq/broker/v1"),
    flag("upgrade_outgoing_qos", False, G,
         "Deliver each message with the QoS of the subscription, even if it was published with a lower QoS"),
    flag("set_tcp_nodelay", True, G,
         "Disable Nagle's algorithm so that small packets are sent at once. Mosquitto's default is false", reload=NEW),
    number("memory_limit", 0, G,
           "Refuse new messages, sessions and connections when the broker uses more memory than this, or when the "
           "process does, if it had at least 16 MiB less at its start; 0 removes the limit", 0, INT64_MAX,
           unit="bytes"),
    number("message_size_limit", 0, G,
           "Largest payload of a message in bytes; 0 removes the limit. max_packet_size is the better choice", 0,
           PACKET_MAX, unit="bytes", deprecated_by="max_packet_size"),
    number("max_packet_size", 2_000_000, G, "Largest MQTT packet that the broker accepts, in bytes", 20, PACKET_MAX,
           above=PACKET_MAX, unit="bytes", error_text="'max_packet_size' must be >= 20."),
    number("packet_buffer_size", 4096, G, "Longest HTTP request of a WebSocket client, in bytes", 0, 65535,
           unit="bytes", error_text="Packet buffer size must be between 0 and 65535 inclusive.",
           aliases=("websockets_headers_size",), reload=NEW),
    number("max_keepalive", 0, G, "Longest keepalive that a client may request, in seconds; 0 allows any", 0, 65535,
           unit="seconds", reload=NEW),
    number("max_inflight_messages", 20, G,
           "QoS 1 and 2 messages per client that may be sent and not yet acknowledged; 0 removes the limit", 0, 65535,
           below=0, error_text="'max_inflight_messages' must be <= 65535.", reload=NEW),
    number("max_inflight_bytes", 0, G,
           "Payload bytes of QoS 1 and 2 messages per client that may be sent and not yet acknowledged; 0 removes the "
           "limit", 0, INT64_MAX, below=0, unit="bytes"),
    number("max_queued_messages", 1000, G,
           "Messages that may wait per client, in addition to those in flight; 0 removes the limit", 0, INT32_MAX,
           below=0),
    number("max_queued_bytes", 0, G,
           "Payload bytes that may wait per client, in addition to those in flight; 0 removes the limit", 0, INT64_MAX,
           below=0, unit="bytes"),
    number("queue_memory", 256 << 20, G,
           "Memory for queued messages in bytes. Above it, durable messages wait on disk only; 0 removes the limit", 0,
           INT64_MAX, unit="bytes", own=True, reload=LIVE),
    flag("queue_qos0_messages", False, G, "Queue QoS 0 messages as well for clients that are offline"),
    number("global_max_clients", -1, G, "Largest number of sessions, connected or not; -1 removes the limit", -1,
           INT32_MAX, below=-1, reload=NEW),
    number("global_max_connections", -1, G, "Largest number of connections to the broker; -1 removes the limit", -1,
           INT32_MAX, below=-1, reload=NEW),
    flag("retain_available", True, G, "Accept retained messages"),
    number("retain_expiry_interval", 0, G,
           "Minutes between Mosquitto's sweeps for expired retained messages. mosq removes each message when it "
           "expires", 1, 10_000_000, above=10_000_000, unit="minutes",
           error_text="retain_expiry_interval must be >= 1."),
    Option("persistent_client_expiration", "duration", NEVER_S, G,
           "Remove the session of a client that has been offline for this time",
           error_text="Invalid 'persistent_client_expiration' duration in configuration."),
    Option("retry_interval", "anything", None, G, "Obsolete. Messages are sent again after a reconnect only",
           ignored="The 'retry_interval' option is no longer available."),
    Option("dhparamfile", "anything", None, G, "Obsolete. OpenSSL selects the parameters",
           ignored="dhparamfile is no longer required."),
)

OWN = (
    flag("acl_refuse_subscribe", False, G,
         "Refuse a SUBSCRIBE to a filter that the acl_file can never allow to deliver a message", own=True),
    flag("control_loopback", False, G,
         "Let clients over the loopback interface, not only over unix sockets, use $CONTROL/mosq/ while no access "
         "rules exist. Behind a proxy on this machine, every client would count as one of them", own=True),
    choice("receive_maximum_policy", "disconnect", G,
           "Reaction to an MQTT 5 client that exceeds the Receive Maximum: disconnect it with 0x93, or only log it as "
           "Mosquitto does", ("log", "disconnect"), own=True),
    number("max_inbound_qos2_bytes", 16 << 20, G,
           "Bytes of QoS 2 messages per session that wait for the client's PUBREL. Above it, a further message is "
           "refused with 0x97 (3.x: the connection is closed); 0 removes the limit", 0, INT64_MAX, unit="bytes",
           own=True),
    number("login_memory", 64 << 20, G,
           "Memory in bytes for all connections that have not logged in, with that of TLS; at most a quarter of "
           "memory_limit. Above it, connections of the networks that hold most end. Their logins that wait for a "
           "plugin or a password hash may hold as much again. 0 removes the limit", 0, INT64_MAX,
           unit="bytes", own=True),
    number("max_output_bytes", 64 << 20, G,
           "Unsent output per client in bytes. Above it, QoS 0 messages to the client are dropped and its input waits",
           65536, INT32_MAX, unit="bytes", own=True),
    number("max_topic_levels", 201, G, "Largest number of levels of a topic or filter", 1, 201, own=True),
    number("connect_timeout", 20, G,
           "Seconds that a new connection has for its CONNECT, including TLS and WebSocket handshakes", 1, 3600,
           unit="seconds", own=True, reload=NEW),
    number("tls_handshake_threads", -1, G,
           "Threads that run TLS handshakes, up to 16. -1 selects one for each processor but one, from 1 to 4; with 0 "
           "the event loop runs them", -1, 16, reload=RESTART, own=True),
    number("tls_handshakes_per_address", 500, G,
           "TLS handshakes of one IPv4 address, or of one /64 of IPv6, that have begun and not ended. Above it, the "
           "one that has waited longest for its client ends, if it has waited for 2 seconds; otherwise the new one "
           "ends. 0 removes the limit. Raise it if very many clients come from one address, as behind a proxy without "
           "PROXY headers", 0, 1_000_000, own=True, reload=NEW),
    number("turn_budget", 200_000, G,
           "Work of all clients together in a turn of the loop; more of it waits for the next turn. A delivery counts "
           "1, the first delivery to a connection in a turn counts 50, a visited node of the index counts 1", 1000,
           INT32_MAX, unit="deliveries; the first to a connection counts 50", own=True),
    number("turn_interval", -1, G,
           "Shortest average time between two turns of the loop under load. Messages that arrive in this time are "
           "handled together, with fewer system calls; each message is that much later at most. The first 16 turns "
           "after a rest do not wait. -1 selects 1000 in a cluster, and 0 otherwise. 0 never waits", -1, 10_000,
           unit="microseconds", own=True),
    # -- passwords and plugins
    number("auth_timeout", 10, G,
           "Seconds that a plugin or the password check has to decide; after that the client is refused", 1, 300,
           unit="seconds", own=True),
    number("auth_threads", 0, G, "Number of threads that check passwords; 0 starts one per CPU core", 0, 64, own=True,
           reload=RESTART),
    number("auth_cache_size", 10_000, G,
           "Number of successful logins that are cached so that their passwords need no new hash; 0 disables the cache",
           0, 1 << 24, own=True),
    number("auth_cache_seconds", 300, G, "Login cache lifetime in seconds; 0 disables the cache", 0, 86_400,
           unit="seconds", own=True),
    flag("auth_backoff", True, G,
         "After repeated failed logins, refuse further attempts of the user and address for a growing pause", own=True),
    # -- the index and the pool of clients, see docs/index.md. Also flags of the command line: TUNING
    choice("index", "full", G,
           "Structure of the subscription index. full uses hash tables, a tree, letters and a cache; the other values "
           "leave parts out, for comparison", ("full", "letter", "hash", "tree", "scan"), own=True, reload=RESTART),
    choice("letter_index", "", G,
           "Division of the index by the first letter of a topic: 27 makes one part per letter, off makes one part. "
           "The default follows the option index", ("27", "off"), own=True, reload=RESTART),
    number("hash_buckets", 0, G,
           "Number of buckets that each hash table of the index has from its first use; more buckets use more memory "
           "and grow less often. 0 grows tables as needed", 0, 1 << 24, own=True, reload=RESTART),
    Option("child_hash_threshold", "count", 9, G,
           "Number of names at a level of the index from which they are found by hash; below it they are compared one "
           "by one, which uses less memory. off always compares", low=1, high=UINT32_MAX, own=True, reload=RESTART),
    Option("match_cache", "count", 131_072, G,
           "Largest number of topics whose subscribers the match cache remembers, at 200 bytes each; needs index full. "
           "off disables the cache", low=1, high=1 << 20, own=True, reload=RESTART),
    choice("pool", "on", G,
           "Keep the memory of disconnected clients for new clients; off returns it to the system allocator",
           ("on", "off"), own=True, reload=RESTART),
    number("pool_grow", 1000, G, "Number of clients for which the pool allocates memory at a time", 1, 1 << 20,
           own=True, reload=RESTART),
    number("pool_idle_max", 10_000, G,
           "Largest number of idle client contexts that the pool keeps; the memory of the others is returned to the "
           "system", 0, 1 << 24, own=True, reload=RESTART),
    choice("queue_overflow", "drop_newest", G,
           "Message that is dropped when a client's queue is full: drop_newest (as Mosquitto), or drop_oldest. "
           "last_value always keeps only the newest message per topic", ("drop_newest", "drop_oldest", "last_value"),
           own=True),
    Option("shared_strategy", "words", (), G,
           "Rule that selects the member of a shared group for a message. After a group's name, it applies to groups "
           "of that name; may be repeated, up to 1000 lines", choices=SHARED_STRATEGIES, own=True),
)

LOG = (
    Option("log_dest", "words", (), G, "Destination of the log; may be repeated. The default is stderr",
           choices=LOG_DESTS),
    Option("log_type", "words", (), G,
           "Types of log lines that are written; may be repeated. The default is error, warning, notice, information",
           choices=("none", *LOG_TYPES, "all")),
    number("log_facility", -1, G, "Syslog facility local0 to local7. The default is the facility daemon", 0, 7),
    flag("log_timestamp", True, G, "Begin each log line with the time"),
    text("log_timestamp_format", G,
         "Format of the time in log lines, as for strftime. The default is seconds since 1970", once=True),
    choice("log_format", "text", G,
           "Format of log lines: text as Mosquitto writes it, or json with one object per line, including level and "
           "client", ("text", "json"), own=True),
    number("log_denied_per_second", 10, G,
           "Largest number of denied publishes and subscribes per second that are logged as notice; 0 logs none", 0,
           100_000, unit="lines a second", own=True),
    number("log_connections_max", 1000, G,
           "Largest number of log lines of one kind (new connections, refused logins, ...) about one network (IPv4 "
           "/24, IPv6 /56) in 10 seconds, apart from the first one of each address. One line reports how many more "
           "there were; 0 removes the limit", 0, 1_000_000,
           unit="lines in 10 seconds", own=True),
    Option("websockets_log_level", "anything", None, G, "Log level of libwebsockets in Mosquitto",
           ignored="it is for libwebsockets, which mosq does not use"),
)

PERSISTENCE = (
    flag("persistence", False, G,
         "Store durable sessions, their queued messages and retained messages on disk, so that they survive a restart "
         "and kill -9", aliases=("retained_persistence",), reload=RESTART),
    text("persistence_location", G,
         "Folder in which the store is created. The default is the folder in which the broker was started", "path",
         once=True, reload=RESTART),
    text("persistence_file", G,
         "Name of Mosquitto's database. The store is a folder with this name and `.store` appended",
         default="mosquitto.db", once=True, reload=RESTART),
    choice("durability", "group", G,
           "When an acknowledgement is sent: none stores nothing; async writes within durability_interval after it; "
           "group writes before it, safe from kill -9; strict syncs to disk before it, safe from power loss",
           DURABILITIES, own=True, reload=RESTART),
    Option("durability_topic", "words", (), G,
           "LEVEL FILTER: durability level of messages whose topic matches the filter. The first matching line counts; "
           "may be repeated, up to 64 lines", choices=DURABILITIES, own=True, reload=LIVE),
    number("durability_interval", 2, G,
           "Longest time in milliseconds for which changes are collected before they are written together", 0, 1000,
           unit="milliseconds", own=True, reload=RESTART),
    Option("stream", "string", (), G,
           "NAME FILTER... [shards N] [retain_age TIME] [retain_bytes SIZE]: writes messages whose topic matches a "
           "filter into a journal that other programs may read; needs persistence true; may be repeated, up to 32 "
           "lines. See journal.md", own=True, reload=RESTART),
    Option("stream_events", "words", (), G,
           "true [retain_age TIME] [retain_bytes SIZE]: writes connects, subscribes, disconnects and drops into the "
           "stream `events`, of at most 1G by default; needs persistence true. The default is false",
           choices=("true", "false"), own=True, reload=RESTART),
    text("node_name", G,
         "Name of this broker among several, of up to 64 letters, digits, '_', '-' and '.'. The pipeline writes it "
         "into each row; `mosq pipeline init --config` takes it from here. The default is cluster_node, or the "
         "host's name", high=64, own=True, once=True),
    flag("mosquitto_db", True, G,
         "With persistence true, also write Mosquitto's own database to persistence_file: at the end, on SIGUSR1 and "
         "by autosave_interval. Mosquitto can start from it; mosq itself starts from the store. See storage.md",
         own=True),
    number("mosquitto_db_seconds", 8, G,
           "Longest time in seconds for writing Mosquitto's database at the end; after it the old file stays", 0, 86400,
           unit="seconds", own=True),
    number("autosave_interval", 1800, G,
           "Seconds, or number of changes, between saves of Mosquitto's database; 0: no automatic saves. A save that "
           "took long is followed by a pause of 20 times that time", 0, INT32_MAX, below=0, unit="seconds"),
    flag("autosave_on_changes", False, G, "If true, autosave_interval counts changes instead of seconds"),
)

ACCESS = (
    flag("allow_anonymous", None, S,
         "Accept clients without a user name. The default is true in local only mode (no listener configured), else "
         "false"),
    flag("allow_zero_length_clientid", True, S, "Accept clients that send no client id, and assign one to them",
         reload=NEW),
    text("auto_id_prefix", S, "Beginning of assigned client ids, up to 50 bytes", default="auto-", high=50, once=True,
         reload=NEW, deprecated="Please use 'listener_auto_id_prefix' instead.",
         deprecated_by="listener_auto_id_prefix"),
    text("acl_file", S, "File with the access rules: which clients may read and write which topics", "path",
         reload=LIVE),
    text("password_file", S, "File with the users and their password hashes", "path"),
    Option("dynamic_security", "special", None, G,
           "JSON file of the clients, groups and roles that commands change at run time; replaces the lines of the "
           "plugin dynamic-security. The plugin's options may follow", own=True),
    text("psk_file", S, "File with the identities and keys of TLS-PSK", "path", reload=NEW),
    text("plugin", S,
         "Loads a plugin: a built-in one by its file name, a library in C for Mosquitto by its path, or a Python class "
         "as python:package.module:Class; may be repeated", "path", aliases=("auth_plugin",)),
    text("global_plugin", G, "Loads a plugin for all listeners, also with per_listener_settings true; may be repeated",
         "path"),
    text("plugin_load", G, "NAME PATH: loads a plugin under a name for plugin_use; may be repeated", "special"),
    text("plugin_opt_", PLUGIN, "Passes the option KEY to the plugin above, whose page describes it; may be repeated",
         prefix=True, aliases=("auth_opt_",)),
    flag("auth_plugin_deny_special_chars", True, PLUGIN,
         "Deny topics to clients whose user name or client id contains +, # or /, without a call of the plugin above"),
    choice("plugin_thread", "own", PLUGIN,
           "Thread in which the plugin in C above is called: own = one of its own, only the client concerned waits; "
           "loop = the broker's loop, in Mosquitto's order, all clients wait", ("own", "loop"), own=True,
           reload=RESTART),
)
