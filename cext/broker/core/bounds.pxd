# Named bounds of the data plane. A test reaches each of them.

cdef enum:
    # named bounds of the data plane; each has a test that reaches it
    HIGH_WATER_BYTES = 256 * 1024       # bytes of a client's unsent output above which deliveries stay in its queue
    LEND_MIN_BYTES = 4096               # smallest payload that is lent to the socket; smaller payloads are copied
    SHAPES_BYTES = 64 * 1024            # encodings of one publication that are stored for its fan-out, in bytes
    REPLAY_NODES = 1000                 # retained nodes visited per slice
    DROP_SLICE = 1000                   # removed subscriptions of an ended session per slice, or the same amount of work to hand over its deliveries
    TIMERS_PER_TURN = 200       # timers per turn: thousands may be due at once, and each may end a client; other clients must not notice
    REPLAY_WAITING_MAX = 100            # waiting deliveries of a session above which its retained replay waits
    REPLAY_BYTES_MAX = 1024 * 1024      # filters of a session whose retained messages were not sent yet, in bytes
    WORK_ACCEPT = 200                   # cost of a new connection, in appends
    WORK_CONNECT = 150                  # cost of a CONNECT
    WORK_END = 400                      # cost of the end of a connection
    WORK_RETAIN = 25                    # cost of a change of a retained message
    WORK_FILTER = 40                    # cost of a filter in SUBSCRIBE or UNSUBSCRIBE, in appends
    WORK_SEND = 50                      # cost of the first write to a connection in a turn, in appends
    LINGER_MS = 2000                    # time in which the peer may read the last bytes of a closed connection
    SUB_IDS_MAX = 64                    # identifiers on one merged copy
    LAST_VALUES_MAX = 4096              # deliveries that queue_overflow last_value looks at
    QUEUE_SPAN_MAX = 1 << 20            # positions from the first unacknowledged delivery on, with queue_overflow drop_oldest
    MERGE_KEEP = 1024                   # places of the scratch for merged copies that are not freed
    MERGE_LISTS_MAX = 65536             # matching filters of a message above which its copies are not merged
    MERGE_BYTES_MAX = 8 * 1024 * 1024   # bytes of all sliced fan-outs that merge; above, the next one waits
