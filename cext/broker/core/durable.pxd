# What of the broker is to outlive it: the structs. keep.pyx records what happens, promise.pyx holds acknowledgements back, commit.pyx writes and lets
# go, recover.pyx reads it all again, clean.pyx says what of an old segment still counts.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.clock cimport clock_monotonic_us
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.session.message cimport Message
from cext.session.session cimport Session
from cext.store.state cimport Store

cdef enum:
    SEAL_EARLY_BYTES = 256 * 1024       # a batch that has so much does not wait for the interval
    PENDING_ACKS_MAX = 16 * 1024            # acknowledgements that wait, per client: above, it is not read from
    ACKS_PER_RECORD = 8192
    MEMORY_PAUSE_MS = 250                      # without memory for a batch: before the next look whether it can be made after all

cdef enum:
    # why nothing more is promised: Durable.trouble
    TROUBLE_FULL = 1                    # the disk is
    TROUBLE_ERROR = 2                   # it cannot be written or synced
    TROUBLE_MEMORY = 4                  # there is none for the open batch

cdef enum:
    PENDING = 0x8000000000000000u       # Message.lsn: its record is still to be written; the rest is its place among the pending
    NO_PENDING = 0xFFFFFFFFu
    ON_RECORD = 0x100000001u            # added to `changes` where something is written whoever acknowledges what

ctypedef struct PendingDelivery:           # one delivery of a pending message
    Session* session            # counted in session.records
    uint32_t position
    uint32_t sub_id
    uint32_t next               # of the same message, plus 1
    uint16_t pid
    uint8_t qos

ctypedef struct Pending:        # a message whose record goes into the open batch, unless all who are owed it acknowledge before
    Message* message            # a reference
    uint64_t lsn_before         # 0: it has no record yet
    uint32_t first              # of Owed, plus 1
    uint32_t last
    uint32_t n
    uint32_t live               # not done
    uint32_t owner_index        # whose acknowledgement waits for it: slab handle
    uint32_t owner_generation

ctypedef struct Waiter:         # who is looked at when a batch is committed
    uint32_t serial
    uint32_t index              # a client: slab handle
    uint32_t generation
    uint32_t position           # a session: what lies before it may be sent
    Session* session            # NULL: a client. Counted in session.records

ctypedef struct DurableBatch:
    uint64_t ticket
    uint32_t serial
    uint32_t sync

ctypedef struct StoredAck:
    uint32_t store_session_id
    uint32_t position

ctypedef struct Durable:
    Store store
    uint8_t level               # DURABILITY_...
    uint8_t strict              # the open batch is to reach the disk
    uint8_t trouble             # TROUBLE_...: nothing more is promised
    uint8_t dirty               # the open batch has something
    uint8_t loading             # recovery: nothing is recorded
    uint8_t news                # the store has some
    uint8_t closed              # the store is
    uint8_t cleaning            # the oldest segment is looked at
    uint8_t patient             # waiting pays: see commit
    uint8_t urgent              # the open batch has what somebody is owed who is away, or what a stream has
    uint8_t lazy                # nobody waits for what is in the open batch
    uint8_t tight               # so much of a stream waits for the disk that publishers do, too
    uint32_t interval_ms
    uint32_t serial             # of the open batch
    uint32_t committed          # the last serial that is committed
    uint64_t opened_us          # when it got its first
    uint64_t sealed_us          # when the one before was sealed
    uint64_t elided_before      # elided_messages, written_messages then
    uint64_t written_before
    uint64_t bytes              # about, in the open batch
    uint64_t changes            # rises with everything that is recorded
    uint64_t lacks              # `changes` when something last found no memory to be recorded: who asked for it is promised nothing
    uint64_t pause_until_ms     # no batch is tried before
    Pending* pendings
    uint32_t n_pendings
    uint32_t cap_pendings
    PendingDelivery* pending_deliveries
    uint32_t n_pending_deliveries
    uint32_t cap_pending_deliveries
    StoredAck* acks
    uint32_t n_acks
    uint32_t cap_acks
    Waiter* waiters             # ring, by serial
    uint32_t waiters_mask
    uint32_t waiters_head
    uint32_t waiters_tail
    Session** readers           # who waits for a turn to read from the store; each counted in session.records
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
    uint32_t n_freed            # of them, those at the end that are free from the next batch on
    uint32_t cap_free
    uint32_t clean_pass         # rises with each segment that was looked at
    uint64_t* seen              # subscriptions written again in this pass: pairs of hashes, open addressing, at most half full
    uint32_t seen_mask
    uint32_t n_seen
    View streams                # recovery: how far each stream had come by the last batch; malloc's
    uint64_t written_messages   # stats
    uint64_t elided_messages
    uint64_t sealed


ctypedef struct StoreGauges:
    uint8_t trouble             # TROUBLE_...
    uint64_t live_bytes
    uint64_t total_bytes        # of its files
    uint64_t segments
    uint64_t waiting_bytes      # on the way to the disk
    uint64_t commits            # batches
    uint64_t commit_us          # how long the last one took to be written, and synced where that is asked for
    uint64_t written            # messages
    uint64_t elided
    uint64_t syncs
    uint64_t cleaned            # segments
    uint64_t errors             # calls that failed


# Something is to be in the open batch, of about so many bytes, that nobody waits for.
cdef inline void batch_opened(Durable* t, uint64_t bytes) noexcept nogil:
    if not t.dirty:
        t.dirty = t.lazy = 1
        t.opened_us = clock_monotonic_us()
    t.bytes += bytes


# The same, and who it is for waits.
cdef inline void batch_changed(Durable* t, uint64_t bytes) noexcept nogil:
    batch_opened(t, bytes)
    t.lazy = 0
    t.changes += 1               # see promise: what is more than one delivery of one message counts in the upper half


cdef inline Durable* durable_of(Broker* b) noexcept nogil:
    return <Durable*>b.durable      # NULL: nothing outlives the broker


cdef inline Session* session_at(Durable* t, uint32_t store_session_id) noexcept nogil:
    return t.sessions_by_store_id[store_session_id] if 0 < store_session_id < t.n_store_ids else NULL


cdef inline uint64_t changes_of(Broker* b) noexcept nogil:
    return durable_of(b).changes if b.durable != NULL else 0


cdef inline bint lacks_since(Broker* b, uint64_t changes) noexcept nogil:
    return b.durable != NULL and durable_of(b).lacks > changes


cdef inline bint durable_refuses(Broker* b) noexcept nogil:
    return b.durable != NULL and durable_of(b).trouble != 0
