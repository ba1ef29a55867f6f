# The settings of one broker: the configuration as numbers and views.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.topic.options cimport IndexOptions

cdef enum:
    # how long an acknowledgement waits; 0: the general setting
    DURABILITY_NONE = 1         # nothing is persisted
    DURABILITY_ASYNC = 2        # acknowledged at once, written within the interval
    DURABILITY_GROUP = 3        # acknowledged when it is written: survives kill -9
    DURABILITY_STRICT = 4       # acknowledged when it is on the disk: survives a power loss

cdef enum:
    OVERFLOW_NEWEST = 0         # which message is dropped when a queue is full
    OVERFLOW_OLDEST = 1
    OVERFLOW_LAST_VALUE = 2     # one message of each topic waits, the last

cdef enum:
    # which clients' wills are sent when another connection takes over the session and continues it
    TAKEOVER_WILL_NONE = 0
    TAKEOVER_WILL_V5 = 1
    TAKEOVER_WILL_ALL = 2

cdef enum:
    # strategy of a shared group; 0: not looked up yet
    SHARE_ROUND_ROBIN = 1
    SHARE_RANDOM = 2
    SHARE_STICKY = 3            # one member for all messages, until it is offline
    SHARE_LEAST_INFLIGHT = 4    # fewest unacknowledged deliveries, waiting ones included; then unsent bytes; then in turn
    SHARE_HASH_TOPIC = 5
    SHARE_HASH_CLIENT = 6       # by publisher; by topic if the broker itself published
    SHARE_STREAM = 7            # not a group of clients, but a stream: see streams.pxd

ctypedef struct DurabilityRule:
    View filter
    uint8_t level

ctypedef struct ShareRule:
    View group
    uint8_t strategy

ctypedef struct Settings:
    uint32_t max_inflight_messages      # 1..65535
    uint32_t receive_maximum            # announced to clients; 0: not announced
    uint64_t max_inflight_bytes         # 0: no limit, as in all fields below
    uint64_t max_inbound_qos2_bytes     # of a session's messages that wait for PUBREL
    uint32_t max_queued_messages
    uint64_t max_queued_bytes
    uint64_t link_memory                # bytes of messages that wait for one other worker
    uint64_t queue_memory               # bytes above which messages that are on disk leave memory
    uint32_t packet_max
    uint32_t message_size_limit
    uint64_t memory_limit
    uint64_t login_memory               # bytes of all connections that have not logged in
    uint8_t memory_watch                # 1: memory_limit bounds the whole process, not only what the broker counts
    int64_t global_max_clients          # -1: no limit
    int64_t global_max_connections
    uint32_t descriptors_reserved       # not for clients: the store, the log, reloads, bridges, HTTP
    uint32_t max_keepalive_s
    uint32_t connect_timeout_ms
    uint32_t route_timeout_ms
    int32_t tls_handshake_threads       # -1: by the number of processors
    uint32_t tls_handshakes_per_address  # 0 = no limit
    uint32_t auth_timeout_ms            # limit for answers of the control plane
    uint32_t log_denied_per_s           # denials logged at notice; 0: none
    uint32_t log_connections_max        # lines of a kind and network in 10 s, see log_rate.pyx; 0: no limit
    uint32_t persistent_expiry_s        # EXPIRY_NEVER: never
    uint32_t sys_interval_s
    uint32_t observe_messages           # one message in this many is observed; 0: none
    uint32_t max_output_bytes
    uint32_t turn_budget                # appends; see WORK_SEND
    uint32_t turn_interval_us           # see Reactor
    uint32_t topic_levels_max           # at most LEVELS_MAX
    uint8_t queue_qos0
    uint8_t upgrade_outgoing_qos
    uint8_t allow_duplicate_messages
    uint8_t compat                      # Mosquitto's way where the standard has another
    uint8_t takeover_will               # TAKEOVER_WILL_...: wills of sessions that a new connection continues
    uint8_t check_retain_source
    uint8_t keep_publishers             # 1: the store notes the publisher of each message, for a persistence plugin
    uint8_t retain_available
    uint8_t connection_messages
    uint8_t acl_refuse_subscribe
    uint8_t control_loopback            # clients over the loopback interface count as local for $CONTROL/mosq/
    uint16_t packet_buffer_size         # largest HTTP request that becomes a WebSocket
    uint8_t receive_maximum_disconnect
    uint8_t share_strategy              # SHARE_...; 0: the default
    uint32_t n_share_rules
    uint8_t overflow                    # OVERFLOW_...
    uint32_t n_durability_rules
    DurabilityRule* durability_rules    # the first that matches counts
    ShareRule* share_rules              # sorted by length, then bytes of the group's name
    View* control_topics                # topics for which the control plane answers
    uint32_t n_control_topics
    IndexOptions index
    uint32_t pool_grow                  # clients per block; 1 with idle_max 0: no pool
    uint32_t pool_idle_max
    View clientid_prefixes              # empty: any
    View version                        # "mosq version X"
    View server_reference               # for clients whose worker moves to another node; empty: none
    View node                           # name of this node of a cluster, in events; empty: none. It needs no escape in JSON
