# The settings of one broker: what the configuration says, as numbers and views.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.topic.options cimport IndexOptions

cdef enum:
    # how long an acknowledgement waits; 0: as for all
    DURABILITY_NONE = 1         # nothing is kept
    DURABILITY_ASYNC = 2        # acknowledged at once, written within the interval
    DURABILITY_GROUP = 3        # acknowledged when it is written: safe from kill -9
    DURABILITY_STRICT = 4       # acknowledged when it is on the disk: safe from a power loss

cdef enum:
    OVERFLOW_NEWEST = 0         # what is dropped when a queue is full
    OVERFLOW_OLDEST = 1
    OVERFLOW_LAST_VALUE = 2     # of each topic one message waits, the last

cdef enum:
    # how a group chooses; 0: not asked for yet
    SHARE_ROUND_ROBIN = 1
    SHARE_RANDOM = 2
    SHARE_STICKY = 3            # one member for all, until it is offline
    SHARE_LEAST_INFLIGHT = 4    # fewest deliveries not acknowledged, waiting ones included; then unsent bytes; then in turn
    SHARE_HASH_TOPIC = 5
    SHARE_HASH_CLIENT = 6       # of who published it; by topic where that is the broker itself
    SHARE_STREAM = 7            # not a group of clients, but a stream that a journal is written of: see streams.pxd

ctypedef struct DurabilityRule:
    View filter
    uint8_t level

ctypedef struct ShareRule:
    View group
    uint8_t strategy

ctypedef struct Settings:
    uint32_t max_inflight_messages      # 1..65535
    uint32_t receive_maximum            # announced; 0: none
    uint64_t max_inflight_bytes         # 0: no limit, as in all that follow
    uint32_t max_queued_messages
    uint64_t max_queued_bytes
    uint64_t queue_memory               # above, what is on the disk need not be in memory as well
    uint32_t packet_max
    uint32_t message_size_limit
    uint64_t memory_limit
    int64_t global_max_clients          # -1: no limit
    int64_t global_max_connections
    uint32_t max_keepalive_s
    uint32_t connect_timeout_ms
    uint32_t auth_timeout_ms            # for the control plane's answers
    uint32_t log_denied_per_s           # denials that are told at notice; 0: never
    uint32_t persistent_expiry_s        # EXPIRY_NEVER: never
    uint32_t sys_interval_s
    uint32_t max_output_bytes
    uint32_t turn_budget                # appends; see WORK_SEND
    uint32_t topic_levels_max           # at most LEVELS_MAX
    uint8_t queue_qos0
    uint8_t upgrade_outgoing_qos
    uint8_t allow_duplicate_messages
    uint8_t check_retain_source
    uint8_t retain_available
    uint8_t connection_messages
    uint8_t acl_refuse_subscribe
    uint16_t packet_buffer_size         # of an HTTP request that becomes a WebSocket, at most
    uint8_t receive_maximum_disconnect
    uint8_t share_strategy              # of share.pxd; 0: the default
    uint32_t n_share_rules
    uint8_t overflow                    # OVERFLOW_...
    uint32_t n_durability_rules
    DurabilityRule* durability_rules    # the first that matches counts
    ShareRule* share_rules              # by length, then bytes of the group's name
    View* control_topics                # what is published there, the control plane answers
    uint32_t n_control_topics
    IndexOptions index
    uint32_t pool_grow                  # clients per block; 1 with idle_max 0: no pool
    uint32_t pool_idle_max
    View clientid_prefixes              # empty: any
    View version                        # "mosq version X"
