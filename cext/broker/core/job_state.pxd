# Jobs: work that is too long for one turn, and its state between two slices.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.session.message cimport Message
from cext.session.session cimport Session
from cext.topic.index cimport List
from cext.topic.match cimport MatchPlace
from cext.topic.retained cimport RetainedCursor

cdef enum:
    JOB_FANOUT = 1
    JOB_REPLAY = 2
    JOB_DROP = 3
    JOB_KICK = 4

ctypedef struct MergePlace:
    void* subscriber                           # first place of a session: its subscriber; NULL: a further place
    uint32_t list
    uint32_t position
    uint32_t next                       # next place of the same session
    uint32_t last                       # last place of the session, in its first place

ctypedef struct Merge:                  # the sessions in the lists of a match, and their places; see merge.pyx
    MergePlace* places
    uint32_t* slots                     # first places, plus 1; 0: free. At most half full
    uint32_t n
    uint32_t cap
    uint32_t mask
    uint32_t slots_cap

cdef enum:
    MERGE_NOT = 0
    MERGE_COLLECTS = 1                  # the match is not complete
    MERGE_WANTED = 2
    MERGE_GATHERS = 3
    MERGE_DELIVERS = 4

cdef enum:
    MATCHING_LATER = 2

ctypedef struct Job
ctypedef struct Arrival:                # a message of another worker whose deliveries take several turns
    Job* behind                         # fan-out of the next message of the same worker and topic: it begins when this one is done
    uint64_t log                        # of the worker, as all further fields of the link; see link_arrived
    uint64_t run
    uint64_t number
    uint64_t identity
    uint32_t slot
    uint32_t places                     # of BrokerLinks.fanout_places
    uint8_t recorded                    # 1: a part of it is in the store

ctypedef struct Job:
    Job* next
    uint8_t kind
    uint8_t blocked                     # retained replay: 1 = it waits for output or acknowledgements, outside of the list
    uint8_t options                     # retained replay: options of the subscription whose cursor is open
    uint8_t open                        # retained replay: 1 = a cursor is open
    uint32_t sub_id
    uint32_t owner_index                # client that waits for the job: slab handle
    uint32_t owner_generation
    Session* session                    # retained replay, cleanup: its session; counted in session.jobs
    Message* message                    # fan-out
    Session* source
    List** lists                        # fan-out: pinned lists of this round, those of shared groups included
    uint32_t* ends                      # number of their places at the time of the match
    uint32_t n_lists
    uint32_t cap_lists
    uint32_t list
    uint32_t position
    void* waiter                        # fan-out: LinkWaiter* of its publisher, held until all deliveries are recorded; NULL: none
    uint16_t released_pid               # fan-out: id of the QoS 2 message that PUBREL released; 0: none
    uint64_t released_identity          # fan-out: its identity, if other workers get it too; 0: none does
    uint8_t merging                     # fan-out: MERGE_...
    uint8_t durability                  # fan-out: durability of the publication
    uint8_t matching                    # fan-out: 1 = the match is not complete; it continues at `place`; MATCHING_LATER = it has not begun
    uint8_t scope                       # fan-out: of the publication, SCOPE_...
    uint64_t again_ms                   # it waits for memory until this time; 0 = it does not
    Arrival* arrival                    # fan-out: where its message came from, if another worker sent it; NULL = a client of this one
    MatchPlace place
    uint32_t merge_n                    # entries to gather, at most
    Merge merge
    RetainedCursor cursor
    uint8_t* todo                       # retained replay: remaining filters, see retain.pyx
    uint32_t todo_at
    uint32_t todo_n
    uint32_t todo_cap
    View* kicked                        # kick: table of user names
    uint32_t kicked_mask
    uint32_t kick                       # kick: its number; `position`: the next client
