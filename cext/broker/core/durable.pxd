# The structs of the state that outlives the broker. persist.pyx records changes, pending_acks.pyx holds acknowledgements back, commit.pyx writes
# and releases, recover.pyx reads everything at the start, clean.pyx finds the live records of an old segment.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.clock cimport clock_monotonic_us
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.settings cimport DURABILITY_GROUP, DURABILITY_STRICT
from cext.session.message cimport Message
from cext.session.session cimport Session
from cext.store.state cimport Store

cdef enum:
    SEAL_EARLY_BYTES = 256 * 1024       # bytes of a batch that is sealed before its interval is over
    PENDING_ACKS_MAX = 16 * 1024            # waiting acknowledgements of a client above which it is not read from
    ACKS_PER_RECORD = 8192
    MEMORY_PAUSE_MS = 250                      # pause before the next attempt to get memory for a batch

cdef enum:
    # why acknowledgements are not released: Durable.trouble
    TROUBLE_FULL = 1                    # the disk is full, or Redis nearly
    TROUBLE_ERROR = 2                   # the disk cannot be written or synced
    TROUBLE_MEMORY = 4                  # no memory for the open batch
    TROUBLE_LOW = 8                     # with TROUBLE_FULL: Redis is only nearly full, and all batches are written

cdef enum:
    PENDING = 0x8000000000000000u       # Message.lsn: the record is not written yet; the rest is the place among the pending messages
    NO_PENDING = 0xFFFFFFFFu
    ON_RECORD = 0x100000001u            # added to `changes` where a record is written that no acknowledgement makes unnecessary

ctypedef struct PendingDelivery:           # one delivery of a pending message
    Session* session            # counted in session.records
    uint32_t position
    uint32_t sub_id
    uint32_t next               # next delivery of the same message, plus 1
    uint16_t pid
    uint8_t qos

ctypedef struct PendingGated:   # a delivery that has entered a plugin gate
    Session* session            # counted in session.records
    Message* message            # a reference: the message as it came, also if a plugin changes it
    uint32_t position           # in the gate
    uint32_t sub_id
    uint8_t qos                 # with RECORD_ENTRY_RETAIN

ctypedef struct Pending:        # a message whose record goes into the open batch, unless all its receivers acknowledge before
    Message* message            # a reference
    uint64_t lsn_before         # 0: without a record so far
    uint32_t first              # first PendingDelivery, plus 1
    uint32_t last
    uint32_t n
    uint32_t live               # deliveries that are not done
    uint32_t owner_index        # client whose acknowledgement waits for it: slab handle
    uint32_t owner_generation
    uint32_t publisher          # place of the body of its RECORD_PUBLISHER in Durable.publishers, plus 1; 0: none
    uint32_t publisher_n

ctypedef struct Waiter:         # a client or session that a committed batch releases
    uint32_t serial
    uint32_t index              # client: slab handle
    uint32_t generation
    uint32_t position           # session: deliveries at lower positions may be sent
    Session* session            # NULL: a client. Counted in session.records

ctypedef struct DurableBatch:
    uint64_t ticket
    uint32_t serial
    uint32_t sync
    uint64_t opened_us          # time of its first record

ctypedef struct StoredAck:
    uint32_t store_session_id
    uint32_t position

ctypedef struct RestoredWill:   # a will that waited for a plugin, or for other workers, when the last process ended; or an undelivered message
    RestoredWill* next
    Session* session            # stands for its client; it is in no table, and has the will
    uint64_t number
    uint64_t identity           # of a will that other workers may have; 0 = none
    uint8_t sent                # 1: it waited for other workers, and the subscribers of this one have it
    uint8_t undelivered         # 1: no will but a message that some sessions lack: storage/undelivered.pyx. The rest is about these
    uint8_t unjournalled
    uint8_t retained            # 1: its topic lacks it
    View sessions               # as in RecordUndelivered; in the same allocation
    View group

ctypedef struct Durable:
    Store store
    uint8_t level               # DURABILITY_...
    uint8_t strict              # 1: the open batch must be synced
    uint8_t trouble             # TROUBLE_...: no acknowledgement is released
    uint8_t dirty               # 1: the open batch has records
    uint8_t loading             # 1: recovery, nothing is recorded
    uint8_t news                # 1: the store has news
    uint8_t closed              # 1: the store is closed
    uint8_t cleaning            # 1: the oldest segment is being cleaned
    uint8_t patient             # 1: waiting pays, see commit.pyx
    uint8_t urgent              # 1: the open batch has deliveries of offline sessions, or records of streams
    uint8_t lazy                # 1: no client waits for the open batch
    uint8_t counting            # 1: copies of live records are counted, not appended
    uint8_t tight               # 1: so much of a stream waits for the disk that publishers wait, too
    uint32_t interval_ms
    uint32_t serial             # serial of the open batch
    uint32_t committed          # serial of the last committed batch
    uint64_t opened_us          # time of the first record of the open batch
    uint64_t sealed_us          # time at which the batch before was sealed
    uint64_t elided_before      # elided_messages, written_messages at that time
    uint64_t written_before
    uint64_t bytes              # about the bytes of the open batch
    uint64_t changes            # number of recorded changes
    uint64_t lacks              # `changes` when memory for a record was last missing: requests before it get no acknowledgement
    uint64_t pause_until_ms     # time before which no batch is tried
    Pending* pendings
    uint32_t n_pendings
    uint32_t cap_pendings
    PendingDelivery* pending_deliveries
    uint32_t n_pending_deliveries
    uint32_t cap_pending_deliveries
    const Session* publisher    # session whose message is being routed, with keep_publishers
    uint16_t publisher_pid
    uint8_t* publishers         # bodies of RECORD_PUBLISHER for the open batch
    uint32_t n_publishers
    uint32_t cap_publishers
    StoredAck* acks
    uint32_t n_acks
    uint32_t cap_acks
    PendingGated* gated         # deliveries that entered gates in the open batch
    uint32_t n_gated
    uint32_t n_gated_recorded   # those whose record is written already, if memory for the batch was missing
    uint32_t cap_gated
    uint32_t n_gated_done
    uint32_t cap_gated_done
    StoredAck* gated_done       # gates that recorded deliveries have left: the position behind the last one
    RestoredWill* restored_wills        # plugins are asked about them at the start
    uint64_t last_will          # number of the last waiting will
    Waiter* waiters             # ring, by serial
    uint32_t waiters_mask
    uint32_t waiters_head
    uint32_t waiters_tail
    Session** readers           # sessions that wait for their turn to read from the store; each counted in session.records
    uint32_t readers_head
    uint32_t n_readers
    uint32_t cap_readers
    DurableBatch batches[64]           # sealed and not committed, ring
    uint32_t batches_head
    uint32_t batches_tail
    Session** sessions_by_store_id            # NULL: free
    uint32_t n_store_ids
    uint32_t cap_store_ids
    uint32_t* free_store_ids
    uint32_t n_free
    uint32_t n_freed            # ids at the end that are free from the next batch on
    uint32_t cap_free
    uint64_t counted            # bytes of the copies in a chunk that is counted
    uint32_t clean_pass         # number of passes over segments that are cleaned
    uint64_t* seen              # subscriptions written again in this pass: pairs of hashes, open addressing, at most half full
    uint32_t seen_mask
    uint32_t n_seen
    View streams                # recovery: positions of the streams as of the last batch; allocated by malloc
    uint64_t written_messages   # statistics
    uint64_t elided_messages
    uint64_t sealed


ctypedef struct StoreGauges:
    uint8_t trouble             # TROUBLE_...
    uint64_t live_bytes
    uint64_t total_bytes        # bytes of the files
    uint64_t segments
    uint64_t waiting_bytes      # bytes on the way to the disk
    uint64_t commits            # committed batches
    uint64_t commit_us          # time to write the last batch, and to sync it where that is required
    uint64_t written            # messages with a record
    uint64_t elided
    uint64_t syncs
    uint64_t cleaned            # cleaned segments
    uint64_t errors             # failed calls


# Account for about `bytes` in the open batch, for which no client waits.
cdef inline void batch_opened(Durable* t, uint64_t bytes) noexcept nogil:
    if not t.dirty:
        t.dirty = t.lazy = 1
        t.opened_us = clock_monotonic_us()
    t.bytes += bytes


# Same, for which a client waits.
cdef inline void batch_changed(Durable* t, uint64_t bytes) noexcept nogil:
    batch_opened(t, bytes)
    t.lazy = 0
    t.changes += 1               # see pending_acks.pyx: more than one delivery of one message counts in the upper half


cdef inline Durable* durable_of(Broker* b) noexcept nogil:
    return <Durable*>b.durable      # NULL: no store


cdef inline Session* session_at(Durable* t, uint32_t store_session_id) noexcept nogil:
    return t.sessions_by_store_id[store_session_id] if 0 < store_session_id < t.n_store_ids else NULL


cdef inline uint64_t changes_of(Broker* b) noexcept nogil:
    return durable_of(b).changes if b.durable != NULL else 0


# Return whether the open batch must be committed before the acknowledgement of what is recorded in it. `durability`: the level of the
# message; 0 = the broker's. With DURABILITY_STRICT the batch is synced.
cdef inline bint batch_needed(Durable* t, uint8_t durability) noexcept nogil:
    if durability == DURABILITY_STRICT:
        t.strict = 1
    return (durability or t.level) >= DURABILITY_GROUP


cdef inline bint lacks_since(Broker* b, uint64_t changes) noexcept nogil:
    return b.durable != NULL and durable_of(b).lacks > changes


# Report that memory was missing for a record or a delivery of a durable session: its cause gets no acknowledgement.
cdef inline void durable_lacks_memory(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t != NULL:
        batch_changed(t, 0)
        t.lacks = t.changes


cdef inline bint durable_refuses(Broker* b) noexcept nogil:
    return b.durable != NULL and durable_of(b).trouble != 0


# Return whether nothing may be recorded for a long time, so that records are not waited for. A store in Redis is never in this case: its
# worker can move to another node at any time, and the next process must know what this one has done.
cdef inline bint durable_is_stuck(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t == NULL or t.trouble == 0:
        return 0
    return t.trouble & ~<uint8_t>(TROUBLE_ERROR | TROUBLE_FULL | TROUBLE_LOW if t.store.files.deferred else 0) != 0
