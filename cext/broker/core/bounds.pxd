# Named bounds of the data plane. A test reaches each of them.

cdef enum:
    # named bounds of the data plane; each has a test that reaches it
    HIGH_WATER_BYTES = 256 * 1024       # unsent output of a client above which its queue stays a queue
    LEND_MIN_BYTES = 4096               # payloads from here on are lent to the socket, smaller ones copied
    SHAPES_BYTES = 64 * 1024            # encodings of one publication that are kept for its fan-out
    REPLAY_NODES = 1000                 # retained nodes visited per slice
    DROP_SLICE = 1000                   # subscriptions of an ended session removed per slice, or work of handing its deliveries over
    TIMERS_PER_TURN = 200       # thousands may fall due at once, and each may end a client: the others must not notice
    REPLAY_WAITING_MAX = 100            # a retained replay waits while so many deliveries wait
    REPLAY_BYTES_MAX = 1024 * 1024      # of filters whose retained messages a session still waits for
    WORK_SEND = 50                      # what the first write to a connection in a turn costs, in appends
    LINGER_MS = 2000                    # for the peer to read our last words
    SUB_IDS_MAX = 64                    # identifiers on one merged copy
    LAST_VALUES_MAX = 4096              # deliveries that queue_overflow last_value looks at
    QUEUE_SPAN_MAX = 1 << 20            # positions from the first not acknowledged on, with queue_overflow drop_oldest
    MERGE_KEEP = 1024                   # places of the scratch for merged copies that is kept
    MERGE_BYTES_MAX = 8 * 1024 * 1024   # of all sliced fan-outs that merge; above, one more waits
