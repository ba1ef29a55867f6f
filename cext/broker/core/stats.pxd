# Counters of one broker, the reasons of drops and refusals, and the positions of all statistics.
from libc.stdint cimport int64_t, uint8_t, uint64_t

# statistics: dev/statistics writes these enumerations from dev/statistics.toml
cdef enum:
    # reasons of a drop: position in Stats.drops
    DROP_QUEUE_MESSAGES = 0            # the queue has max_queued_messages
    DROP_QUEUE_BYTES = 1               # the queue has max_queued_bytes
    DROP_QOS0_BLOCKED = 2              # QoS 0 while the socket of the subscriber is full
    DROP_OUTPUT_BYTES = 3              # the connection has max_output_bytes of unsent output
    DROP_PACKET_SIZE = 4               # larger than the Maximum Packet Size of the client
    DROP_EXPIRED = 5                   # the Message Expiry Interval is over
    DROP_ACL_READ = 6                  # the client may not read the topic
    DROP_ACL_WRITE = 7                 # the client may not write to the topic
    DROP_MEMORY = 8                    # memory_limit is reached, or there is no memory
    DROP_PAYLOAD_SIZE = 9              # larger than message_size_limit
    DROP_QUOTA = 10                    # the publisher exceeded the Receive Maximum
    DROP_SESSION_ENDED = 11            # the session ended before the delivery
    DROP_RETAINED = 12                 # a retained message was refused or expired
    DROP_TRANSFORM = 13                # a plugin dropped the message
    DROP_DISK = 14                     # the store accepts nothing, because the disk is full or fails
    DROP_REPLACED = 15                 # queue_overflow last_value: a newer message for the topic came
    DROP_LOOP = 16                     # the message came back to a broker that it had passed
    DROP_UNREADABLE = 17               # the record in the store is damaged
    DROP_NO_NAME = 18                  # no line of the bridge sends the topic out any more, or its remote name is impossible
    DROP_REASONS = 19                  # number of DROP reasons

cdef enum:
    # reasons of a refusal: position in Stats.refused
    REFUSED_LISTENER = 0               # the listener has max_connections
    REFUSED_GLOBAL = 1                 # the broker has global_max_connections
    REFUSED_CLIENTS = 2                # the broker has global_max_clients
    REFUSED_DESCRIPTORS = 3            # no file descriptor is free beside the reserved ones
    REFUSED_MEMORY = 4                 # memory_limit is reached, or there is no memory
    REFUSED_ACCESS = 5                 # CONNECT was not authorised
    REFUSED_AUTH_TIMEOUT = 6           # the control plane did not answer within auth_timeout
    REFUSED_DISK = 7                   # a durable session, while the disk of the store is full
    REFUSED_EVICTED = 8                # had not logged in when descriptors or memory ran out, and its network held much of it
    REFUSED_REASONS = 9                # number of REFUSED reasons

cdef enum:
    # position in ControlRequest.stats, with the unit
    STAT_CLIENTS_CONNECTED = 0         # clients
    STAT_CLIENTS_TOTAL = 1             # sessions
    STAT_CLIENTS_DISCONNECTED = 2      # sessions
    STAT_CLIENTS_MAX = 3               # clients
    STAT_CLIENTS_EXPIRED = 4           # sessions
    STAT_CONNECTIONS = 5               # CONNECT packets
    STAT_SOCKETS = 6                   # connections
    STAT_CONNECTIONS_ROOM = 7          # connections
    STAT_TLS_HANDSHAKES = 8            # handshakes
    STAT_TLS_HANDSHAKES_FAILED = 9     # handshakes
    STAT_NEWCOMERS = 10                # connections
    STAT_NEWCOMERS_BYTES = 11          # bytes
    STAT_RESIDENT_BYTES = 12           # bytes
    STAT_MESSAGES_IN = 13              # packets
    STAT_MESSAGES_OUT = 14             # packets
    STAT_PUBLISH_IN = 15               # PUBLISH packets
    STAT_PUBLISH_OUT = 16              # PUBLISH packets
    STAT_PUBLISH_BYTES_IN = 17         # bytes
    STAT_PUBLISH_BYTES_OUT = 18        # bytes
    STAT_PUBLISH_DROPPED = 19          # messages
    STAT_BYTES_IN = 20                 # bytes
    STAT_BYTES_OUT = 21                # bytes
    STAT_LINKS_BYTES_IN = 22           # bytes
    STAT_LINKS_BYTES_OUT = 23          # bytes
    STAT_UNSENT_BYTES = 24             # bytes
    STAT_UNSENT_PACKETS = 25           # PUBLISH packets
    STAT_STORE_MESSAGES = 26           # messages
    STAT_STORE_BYTES = 27              # bytes
    STAT_HEAP_BYTES = 28               # bytes
    STAT_HEAP_BYTES_MAX = 29           # bytes
    STAT_SUBSCRIPTIONS = 30            # subscriptions
    STAT_SHARED_SUBSCRIPTIONS = 31     # subscriptions
    STAT_FILTERS = 32                  # filters
    STAT_INDEX_EXACT = 33              # filters
    STAT_INDEX_NODES = 34              # nodes
    STAT_INDEX_DEPTH = 35              # levels
    STAT_INDEX_BUCKETS = 36            # buckets
    STAT_INDEX_LOAD = 37               # entries per bucket
    STAT_INDEX_BYTES = 38              # bytes
    STAT_INDEX_CACHE_HITS = 39         # look-ups
    STAT_INDEX_CACHE_MISSES = 40       # look-ups
    STAT_RETAINED = 41                 # messages
    STAT_RETAINED_SYSTEM = 42          # messages
    STAT_RETAINED_TREE_BYTES = 43      # bytes
    STAT_BUFFERS_USED_BYTES = 44       # bytes
    STAT_BUFFERS_IDLE_BYTES = 45       # bytes
    STAT_POOL_USED = 46                # client contexts
    STAT_POOL_IDLE = 47                # client contexts
    STAT_PROTOCOL_DISCONNECTS = 48     # connections
    STAT_WORK = 49                     # appends
    STAT_TURNS = 50                    # turns
    STAT_TURN_WORK_MAX = 51            # appends
    STAT_TURN_US_MAX = 52              # microseconds
    STAT_AUTH_REQUESTS = 53            # auth requests
    STAT_AUTH_REQUESTS_PENDING = 54    # auth requests
    STAT_AUTH_REQUESTS_TIMED_OUT = 55  # auth requests
    STAT_ANSWERS_STALE = 56            # answers
    STAT_EVENTS_LOST = 57              # events
    STAT_UPGRADES = 58                 # upgrades
    STAT_UPGRADES_MOVED = 59           # connections
    STAT_UPGRADES_CLOSED = 60          # connections
    STAT_UPGRADE_PAUSE_US = 61         # microseconds
    STAT_DISK_TROUBLE = 62             # sum
    STAT_DISK_LIVE_BYTES = 63          # bytes
    STAT_DISK_TOTAL_BYTES = 64         # bytes
    STAT_DISK_SEGMENTS = 65            # files
    STAT_DISK_WAITING_BYTES = 66       # bytes
    STAT_DISK_COMMITS = 67             # batches
    STAT_DISK_COMMITS_SECOND = 68      # batches per second
    STAT_DISK_COMMIT_US = 69           # microseconds
    STAT_DISK_MESSAGES_WRITTEN = 70    # messages
    STAT_DISK_MESSAGES_ELIDED = 71     # messages
    STAT_DISK_MESSAGES_ELIDED_PERCENT = 72  # percent
    STAT_DISK_SYNCS = 73               # calls
    STAT_DISK_SEGMENTS_CLEANED = 74    # files
    STAT_DISK_ERRORS = 75              # calls
    STAT_DROPS_QUEUE_MESSAGES = 76     # messages
    STAT_DROPS_QUEUE_BYTES = 77        # messages
    STAT_DROPS_QOS0_BLOCKED = 78       # messages
    STAT_DROPS_OUTPUT_BYTES = 79       # messages
    STAT_DROPS_PACKET_SIZE = 80        # messages
    STAT_DROPS_EXPIRED = 81            # messages
    STAT_DROPS_ACL_READ = 82           # messages
    STAT_DROPS_ACL_WRITE = 83          # messages
    STAT_DROPS_MEMORY = 84             # messages
    STAT_DROPS_PAYLOAD_SIZE = 85       # messages
    STAT_DROPS_QUOTA = 86              # messages
    STAT_DROPS_SESSION_ENDED = 87      # messages
    STAT_DROPS_RETAINED = 88           # messages
    STAT_DROPS_TRANSFORM = 89          # messages
    STAT_DROPS_DISK = 90               # messages
    STAT_DROPS_REPLACED = 91           # messages
    STAT_DROPS_LOOP = 92               # messages
    STAT_DROPS_UNREADABLE = 93         # messages
    STAT_DROPS_NO_NAME = 94            # messages
    STAT_REFUSED_MAX_CONNECTIONS = 95  # CONNECT packets
    STAT_REFUSED_GLOBAL_MAX_CONNECTIONS = 96  # CONNECT packets
    STAT_REFUSED_GLOBAL_MAX_CLIENTS = 97  # CONNECT packets
    STAT_REFUSED_DESCRIPTORS = 98      # CONNECT packets
    STAT_REFUSED_MEMORY = 99           # CONNECT packets
    STAT_REFUSED_ACCESS = 100          # CONNECT packets
    STAT_REFUSED_AUTH_TIMEOUT = 101    # CONNECT packets
    STAT_REFUSED_DISK = 102            # CONNECT packets
    STAT_REFUSED_EVICTED = 103         # CONNECT packets
    STATS_N = 104                      # number of statistics

cdef enum:
    # position in Stream.gauges
    GAUGE_RECORDS = 0                  # records written since the start
    GAUGE_LOST = 1                     # messages that were not written since the start
    GAUGE_WAITING_BYTES = 2            # memory of blocks that wait for the disk, in bytes
    GAUGE_DISK_BYTES = 3               # files of the stream, in bytes
    GAUGE_RETIRED_RECORDS = 4          # records that retention removed
    GAUGE_RETIRED_UNREAD = 5           # records that retain_bytes removed before a consumer had read them
    GAUGE_ERRORS = 6                   # calls that failed
    STREAM_GAUGES = 7                  # number of gauges

cdef enum:
    STAT_DROPS = 76           # position of the first drop reason
    STAT_REFUSED = 95         # position of the first refusal
    SYS_LOADS_N = 9           # number of load averages
    SYS_TOPICS_N = 83         # number of topics with a statistic
# statistics: end

ctypedef struct Stats:
    uint64_t messages_in                # packets of any type
    uint64_t messages_out
    uint64_t publish_in
    uint64_t publish_out
    uint64_t publish_bytes_in           # payload
    uint64_t publish_bytes_out
    uint64_t publish_dropped
    uint64_t sockets                    # accepted connections
    uint64_t connections                # accepted CONNECTs
    uint64_t clients_expired
    uint64_t clients_max
    uint64_t clients_connected
    uint64_t protocol_disconnects                       # connections that the broker ended with a reason code of 0x80 or above
    uint64_t drops[DROP_REASONS]
    int64_t drop_s[DROP_REASONS]        # Unix time of the last example of each reason
    uint64_t refused[REFUSED_REASONS]
    uint64_t auth_requests                      # auth requests to the control plane
    uint64_t auth_request_timeouts               # auth requests that were not answered in time
    uint64_t answers_stale              # late, repeated, or for a client that is gone
    uint64_t events_lost                # events that found the ring full

ctypedef struct Average:
    # a load average over 1, 5 and 15 minutes, per minute
    uint64_t last
    double value[3]
    double sent[3]
    uint8_t was_sent
