# The turns of a load until its goal is reached.
from libc.stdint cimport uint64_t
from cext.bench.load cimport Load

cdef enum:                      # Goal.kind
    GOAL_TIME = 0               # receive only, until `until_ns`
    # goal.target clients are up; those of [first, first + n) are connected, goal.pending_max at a time
    GOAL_UP = 1
    GOAL_SUBSCRIBED = 2         # goal.target SUBACKs arrived
    GOAL_FLOW = 3               # everything was published, delivered and acknowledged
    GOAL_RECEIVED = 4           # goal.target deliveries arrived, duplicates not counted
    GOAL_LEFT = 5               # the broker has ended the connections of goal.target clients
    GOAL_PONGS = 6

cdef enum:                      # results of load_run
    RUN_MORE = 0                # the time is over
    RUN_DONE = 1
    RUN_FAILED = 2              # see Load.failure
    RUN_STALLED = 3             # no progress for stall_ns

cdef int load_run(Load* g, uint64_t until_ns) noexcept nogil
