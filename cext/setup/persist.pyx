"""Open and read the store, before the loop, in the control plane's thread. The storage thread begins with the loop, when the process has its final
rights. This module knows the names of levels, and errors."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from cext.base.hash cimport HashKey, hash_bytes
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, durable_of
from cext.broker.storage.commit cimport durable_init, durable_new
from cext.broker.storage.recover cimport Recovered, durable_recover
from cext.setup.settings import DURABILITY_LEVELS
from cext.setup.streams cimport streams_open
from cext.store.file cimport FileOps, file_ops_of
from cext.store.state cimport STORE_RANGES_REPORTED, STORE_WHY_MAX, StoreLoss, StoreOptions, StoreRecord
from cext.store.store cimport store_close, store_error, store_open, store_recover

cdef int nothing_read(void* ctx, const StoreRecord* r) noexcept nogil:
    return -1                    # a store that is taken into use has no records


cdef Durable* attachable(str directory, str durability, int interval_ms) except NULL:
    """Return a new store in a folder, for durable_attach. Raise OSError with a text for users."""
    cdef char why[STORE_WHY_MAX]
    cdef StoreOptions options
    cdef bytes path = directory.encode("utf-8", "surrogateescape")
    cdef const char* dir = path
    cdef Durable* t = durable_new(DURABILITY_LEVELS[durability], interval_ms)
    cdef int rc
    if t == NULL:
        raise MemoryError
    memset(&options, 0, sizeof(options))
    options.create = 1
    with nogil:
        rc = store_open(&t.store, dir, &options, NULL, why, sizeof(why))
        if rc == 0:
            rc = store_recover(&t.store, nothing_read, NULL, NULL)
            if rc != 0:
                store_error(&t.store, why, sizeof(why))
    if rc != 0:
        attachable_free(t)
        raise OSError((<bytes>why).decode("utf-8", "replace") or f"the store in {directory} is not empty")
    return t


cdef void attachable_free(Durable* t) noexcept:
    with nogil:
        store_close(&t.store, NULL, 0)
        free(t)


cdef object persist(Broker* b, str directory, str durability, int interval_ms, object segment_bytes, list streams, object files):
    """Return counts of what was found and lost, as a dict. `files`: see file_ops_of; it must outlive the store. Raise OSError with a text for
    users."""
    cdef char why[STORE_WHY_MAX]
    cdef StoreOptions options
    cdef StoreLoss loss
    cdef Recovered found
    cdef Durable* t
    cdef int rc
    cdef bytes path = directory.encode("utf-8", "surrogateescape")
    cdef const char* dir = path
    cdef FileOps table = file_ops_of(files)
    if durable_init(b, DURABILITY_LEVELS[durability], interval_ms) != 0:
        raise MemoryError
    t = durable_of(b)
    memset(&options, 0, sizeof(options))
    options.segment_bytes = segment_bytes
    options.create = 1
    with nogil:
        rc = store_open(&t.store, dir, &options, &table, why, sizeof(why))
    if rc != 0:
        raise OSError((<bytes>why).decode("utf-8", "replace"))
    b.names_key.k0 = hash_bytes(<HashKey*>t.store.store_id, <const uint8_t*>"client", 6)         # before there is any session
    b.names_key.k1 = hash_bytes(<HashKey*>t.store.store_id, <const uint8_t*>"id", 2)
    with nogil:
        rc = durable_recover(b, &loss, &found)
        if rc != 0:
            store_error(&t.store, why, sizeof(why))
    if rc != 0:
        raise OSError((<bytes>why).decode("utf-8", "replace") or "out of memory while the store was read")
    opened = streams_open(b, streams) if streams else []
    return {"streams": opened, "records": found.records, "odd": found.odd, "denied": found.denied, "sessions": found.sessions, "subscriptions": found.subscriptions,
            "messages": found.messages, "retained": found.retained, "lost_bytes": loss.bytes,
            "torn_bytes": loss.torn_bytes, "unreadable": loss.unreadable, "foreign": loss.foreign, "segments": loss.segments,
            "lost": [(loss.ranges[i].lo, loss.ranges[i].hi) for i in range(min(loss.n, <uint32_t>STORE_RANGES_REPORTED))], "n_lost": loss.n}
