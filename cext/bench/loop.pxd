# The turns of a load, until its goal is reached.
from libc.stdint cimport uint64_t
from cext.bench.load cimport Load

cdef enum:                      # Goal.kind
    GOAL_TIME = 0               # nothing but what comes, until `until_ns`
    GOAL_UP = 1                 # goal.target clients are up; those of [first, first + n) are connected, goal.pending_max at a time
    GOAL_SUBSCRIBED = 2         # goal.target SUBACKs have come
    GOAL_FLOW = 3               # everything was published, delivered and acknowledged
    GOAL_RECEIVED = 4           # goal.target deliveries, without those that came twice
    GOAL_LEFT = 5               # goal.target clients have seen the broker's end of their connections
    GOAL_PONGS = 6

cdef enum:                      # what load_run returns
    RUN_MORE = 0                # the time is over
    RUN_DONE = 1
    RUN_FAILED = 2              # see Load.failure
    RUN_STALLED = 3             # nothing happened for stall_ns

cdef int load_run(Load* g, uint64_t until_ns) noexcept nogil
