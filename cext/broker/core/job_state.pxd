# Work that is too long for one turn: what a job keeps from slice to slice.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.session.message cimport Message
from cext.session.session cimport Session
from cext.topic.index cimport List
from cext.topic.retained cimport RetainedCursor

cdef enum:
    JOB_FANOUT = 1
    JOB_REPLAY = 2
    JOB_DROP = 3
    JOB_KICK = 4

ctypedef struct MergePlace:
    void* subscriber                           # of a session's first place; NULL: a further one
    uint32_t list
    uint32_t position
    uint32_t next                       # place of the same session
    uint32_t last                       # of a first place

ctypedef struct Merge:                  # who is in the lists of a match, and where; see merge.pyx
    MergePlace* places
    uint32_t* slots                     # of first places, plus 1; 0: free. At most half full
    uint32_t n
    uint32_t cap
    uint32_t mask
    uint32_t slots_cap

cdef enum:
    MERGE_NOT = 0
    MERGE_WANTED = 1
    MERGE_GATHERS = 2
    MERGE_DELIVERS = 3

ctypedef struct Job:
    Job* next
    uint8_t kind
    uint8_t blocked                     # replay: waits for output to drain or for acknowledgements; not in the list meanwhile
    uint8_t options                     # replay: of the subscription whose cursor is open
    uint8_t open                        # replay: a cursor is open
    uint32_t sub_id
    uint32_t owner_index                # the client that waits for it: slab handle
    uint32_t owner_generation
    Session* session                    # replay, drop: whose; counted in session.jobs
    Message* message                    # fan-out
    Session* source
    List** lists                        # fan-out: pinned
    uint32_t* ends
    uint32_t n_lists
    uint32_t list
    uint32_t position
    uint16_t released_pid               # fan-out: of the QoS 2 message that PUBREL let go; 0: none
    uint8_t merging                     # fan-out: MERGE_...
    uint8_t durability                  # fan-out: of the publication
    uint32_t merge_n                    # entries to be gathered, at most
    Merge merge
    RetainedCursor cursor
    uint8_t* todo                       # replay: filters still to come, see retain.pyx
    uint32_t todo_at
    uint32_t todo_n
    uint32_t todo_cap
    View* kicked                        # kick: a table of user names
    uint32_t kicked_mask
    uint32_t kick                       # which it is; `position`: of the next client
