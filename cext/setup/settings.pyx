"""Check the control plane's settings and fill the data plane's `Settings`. This module knows names, ranges and units. It does not know their
effect."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from cext.base.view cimport View
from cext.broker.core.settings cimport (
    DURABILITY_ASYNC, DURABILITY_GROUP, DURABILITY_NONE, DURABILITY_STRICT, DurabilityRule, OVERFLOW_LAST_VALUE,
    OVERFLOW_NEWEST, OVERFLOW_OLDEST, SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_LEAST_INFLIGHT, SHARE_RANDOM,
    SHARE_ROUND_ROBIN, SHARE_STICKY, Settings, ShareRule, TAKEOVER_WILL_ALL, TAKEOVER_WILL_NONE, TAKEOVER_WILL_V5,
)
from cext.session.session cimport EXPIRY_NEVER
from cext.setup.views cimport view_keep
from cext.topic.options cimport (
    CHILD_HASH_THRESHOLD, INDEX_FULL, INDEX_HASH, INDEX_LETTER, INDEX_SCAN, INDEX_TREE, LETTERS_OFF, LETTERS_OF_MODE,
    LETTERS_ON, NEVER_HASHED,
)
from cext.topic.name cimport LEVELS_MAX

DESCRIPTORS_RESERVED = 32       # enough for a store, a log and a reload; the control plane computes it from the configuration

MODES = {"full": INDEX_FULL, "letter": INDEX_LETTER, "hash": INDEX_HASH, "tree": INDEX_TREE, "scan": INDEX_SCAN}
LETTER_CHOICES = {"": LETTERS_OF_MODE, "27": LETTERS_ON, "off": LETTERS_OFF}
DURABILITY_LEVELS = {"": 0, "none": DURABILITY_NONE, "async": DURABILITY_ASYNC, "group": DURABILITY_GROUP, "strict": DURABILITY_STRICT}
OVERFLOWS = {"drop_newest": OVERFLOW_NEWEST, "drop_oldest": OVERFLOW_OLDEST, "last_value": OVERFLOW_LAST_VALUE}
TAKEOVER_WILLS = {"none": TAKEOVER_WILL_NONE, "v5": TAKEOVER_WILL_V5, "all": TAKEOVER_WILL_ALL}
SHARE_STRATEGIES = {"round_robin": SHARE_ROUND_ROBIN, "random": SHARE_RANDOM, "sticky": SHARE_STICKY,
                    "least_inflight": SHARE_LEAST_INFLIGHT, "hash_topic": SHARE_HASH_TOPIC, "hash_client": SHARE_HASH_CLIENT}


cdef setting_number(dict s, name, default, low=0, high=0xFFFFFFFF):
    value = int(s.get(name, default))
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be between {low} and {high}")
    return value


cdef choice(dict s, name, default, dict choices):
    value = s.get(name, default)
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    return choices[value]


cdef int settings_read(Settings* t, dict s, list keep) except -1:
    inflight = setting_number(s, "max_inflight_messages", 20, 0, 65535)
    t.max_inflight_messages = inflight or 65535
    t.receive_maximum = inflight
    t.max_inflight_bytes = setting_number(s, "max_inflight_bytes", 0, 0, 2**63)
    t.max_queued_messages = setting_number(s, "max_queued_messages", 1000)
    t.max_queued_bytes = setting_number(s, "max_queued_bytes", 0, 0, 2**63)
    t.queue_memory = setting_number(s, "queue_memory", 256 << 20, 0, 2**63)
    t.packet_max = setting_number(s, "max_packet_size", 2000000, 0, 268435460)
    t.message_size_limit = setting_number(s, "message_size_limit", 0, 0, 268435455)
    t.memory_limit = setting_number(s, "memory_limit", 0, 0, 2**63)
    t.login_memory = setting_number(s, "login_memory", 64 << 20, 0, 2**63)
    t.memory_watch = setting_number(s, "memory_watch", 0, 0, 1)
    t.global_max_clients = setting_number(s, "global_max_clients", -1, -1, 2**31)
    t.global_max_connections = setting_number(s, "global_max_connections", -1, -1, 2**31)
    t.descriptors_reserved = setting_number(s, "descriptors_reserved", DESCRIPTORS_RESERVED, 0, 1 << 20)
    t.max_keepalive_s = setting_number(s, "max_keepalive", 0, 0, 65535)
    t.tls_handshake_threads = setting_number(s, "tls_handshake_threads", -1, -1, 16)
    t.tls_handshakes_per_address = <uint32_t>setting_number(s, "tls_handshakes_per_address", 500, 0, 1_000_000)
    t.connect_timeout_ms = setting_number(s, "connect_timeout", 20, 1, 86400) * 1000
    t.auth_timeout_ms = setting_number(s, "auth_timeout", 10, 1, 3600) * 1000
    t.route_timeout_ms = setting_number(s, "route_timeout", 10, 1, 3600) * 1000
    t.link_memory = setting_number(s, "link_memory", 256 << 20, 1 << 20, 2**63)
    t.log_denied_per_s = setting_number(s, "log_denied_per_second", 10, 0, 1_000_000)
    t.log_connections_max = setting_number(s, "log_connections_max", 1000, 0, 1_000_000)
    expiry = setting_number(s, "persistent_client_expiration", -1, -1, 2**40)
    t.persistent_expiry_s = EXPIRY_NEVER if expiry < 0 else min(expiry, EXPIRY_NEVER - 1)
    t.observe_messages = <uint32_t>setting_number(s, "observe_messages", 0, 0, 1_000_000)
    t.sys_interval_s = setting_number(s, "sys_interval", 10, 0, 65535)
    t.max_output_bytes = setting_number(s, "max_output_bytes", 64 << 20, 65536, 2**31)
    t.turn_budget = setting_number(s, "turn_budget", 200_000, 1000, 2**31)
    t.turn_interval_us = <uint32_t>setting_number(s, "turn_interval", 0, 0, 10_000)
    t.topic_levels_max = setting_number(s, "max_topic_levels", LEVELS_MAX, 1, LEVELS_MAX)
    t.queue_qos0 = setting_number(s, "queue_qos0_messages", 0, 0, 1)
    t.upgrade_outgoing_qos = setting_number(s, "upgrade_outgoing_qos", 0, 0, 1)
    t.compat = setting_number(s, "compat", 0, 0, 1)
    t.takeover_will = choice(s, "takeover_will", "v5", TAKEOVER_WILLS)
    t.allow_duplicate_messages = setting_number(s, "allow_duplicate_messages", 1, 0, 1)
    t.keep_publishers = setting_number(s, "keep_publishers", 0, 0, 1)
    t.check_retain_source = setting_number(s, "check_retain_source", 0, 0, 1)
    t.retain_available = setting_number(s, "retain_available", 1, 0, 1)
    t.connection_messages = setting_number(s, "connection_messages", 1, 0, 1)
    t.acl_refuse_subscribe = setting_number(s, "acl_refuse_subscribe", 0, 0, 1)
    t.control_loopback = setting_number(s, "control_loopback", 0, 0, 1)
    t.packet_buffer_size = setting_number(s, "packet_buffer_size", 4096, 0, 65535) or 4096
    policy = s.get("receive_maximum_policy", "disconnect")
    if policy not in ("log", "disconnect"):
        raise ValueError(f"receive_maximum_policy is {policy!r}; it must be log or disconnect")
    t.receive_maximum_disconnect = policy == "disconnect"
    t.max_inbound_qos2_bytes = setting_number(s, "max_inbound_qos2_bytes", 16 << 20, 0, 2**63)
    tuning_read(t, s)
    t.clientid_prefixes = view_keep(keep, s.get("clientid_prefixes") or "")
    t.version = view_keep(keep, s.get("version") or "mosq")
    t.server_reference = view_keep(keep, s.get("cluster_reference") or "")
    t.node = view_keep(keep, s.get("cluster_node") or "")
    t.overflow = choice(s, "queue_overflow", "drop_newest", OVERFLOWS)
    shares_read(t, s.get("shared_strategy") or "", keep)
    durabilities_read(t, s.get("durability_topic") or "", keep)
    control_read(t, s.get("control_topics") or (), keep)
    return 0


cdef int tuning_read(Settings* t, dict s) except -1:
    t.index.mode = choice(s, "index", "full", MODES)
    t.index.letters = choice(s, "letter_index", "", LETTER_CHOICES)
    t.index.hash_buckets = setting_number(s, "hash_buckets", 0, 0, 1 << 24)
    t.index.child_hash_threshold = setting_number(s, "child_hash_threshold", CHILD_HASH_THRESHOLD) or NEVER_HASHED
    t.index.match_cache = setting_number(s, "match_cache", 131_072, 0, 1 << 20)
    pool = choice(s, "pool", "on", {"on": True, "off": False})
    t.pool_grow = setting_number(s, "pool_grow", 1000, 1, 1 << 20) if pool else 1
    t.pool_idle_max = setting_number(s, "pool_idle_max", 10_000) if pool else 0
    return 0


cdef int shares_read(Settings* t, str text, list keep) except -1:
    """Read strategies of shared groups. `text`: lines `STRATEGY` or `STRATEGY GROUP`; the last line for a group counts."""
    cdef uint32_t i
    cdef ShareRule* rules
    codes = {}
    for line in text.split("\n") if text else ():
        strategy, _, group = line.partition(" ")
        if strategy not in SHARE_STRATEGIES:
            raise ValueError(f"shared_strategy is {strategy!r}; it must be one of {', '.join(SHARE_STRATEGIES)}")
        codes[group.encode()] = SHARE_STRATEGIES[strategy]
    t.share_strategy = codes.pop(b"", SHARE_ROUND_ROBIN)
    if not codes:
        return 0
    rules = <ShareRule*>calloc(len(codes), sizeof(ShareRule))
    if rules == NULL:
        raise MemoryError
    t.share_rules = rules
    t.n_share_rules = <uint32_t>len(codes)
    for i, group in enumerate(sorted(codes, key=lambda name: (len(name), name))):     # sorted for a binary search
        rules[i].group = view_keep(keep, group)
        rules[i].strategy = codes[group]
    return 0


cdef int control_read(Settings* t, topics, list keep) except -1:
    cdef uint32_t i
    for topic in topics:
        if not topic.startswith("$CONTROL/") or len(topic) == len("$CONTROL/"):
            raise ValueError(f"control_topics has {topic!r}; each must begin with $CONTROL/")
    if not topics:
        return 0
    t.control_topics = <View*>calloc(len(topics), sizeof(View))
    if t.control_topics == NULL:
        raise MemoryError
    t.n_control_topics = <uint32_t>len(topics)
    for i, topic in enumerate(topics):
        t.control_topics[i] = view_keep(keep, topic)
    return 0


cdef int durabilities_read(Settings* t, str text, list keep) except -1:
    """Read durability rules. `text`: lines `LEVEL FILTER`."""
    cdef uint32_t i
    lines = [line.split(" ", 1) for line in text.split("\n")] if text else []
    if not lines:
        return 0
    t.durability_rules = <DurabilityRule*>calloc(len(lines), sizeof(DurabilityRule))
    if t.durability_rules == NULL:
        raise MemoryError
    t.n_durability_rules = <uint32_t>len(lines)
    for i, (level, pattern) in enumerate(lines):
        if level not in DURABILITY_LEVELS:
            raise ValueError(f"durability_topic is {level!r}; it must be one of {', '.join(filter(None, DURABILITY_LEVELS))}")
        t.durability_rules[i].level = DURABILITY_LEVELS[level]
        t.durability_rules[i].filter = view_keep(keep, pattern.encode())
    return 0


cdef void settings_free(Settings* t) noexcept nogil:
    free(t.durability_rules)
    t.durability_rules = NULL
    t.n_durability_rules = 0
    free(t.control_topics)
    t.control_topics = NULL
    t.n_control_topics = 0
    free(t.share_rules)
    t.share_rules = NULL
    t.n_share_rules = 0
