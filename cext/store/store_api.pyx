"""Python API of the store: `scan` for tools (no lock, no changes), `PyStore` for tests and benchmarks."""

cimport cython
from libc.stdint cimport UINT64_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.store.crc cimport crc_bytes, crc_hardware, crc_record
from cext.store.file cimport FileOps, file_ops_of
from cext.store.format cimport FORMAT
from cext.store.replay cimport SLOT_ALONE, SLOT_SEGMENT, StoreListing, segment_load_live, store_listing_free, store_listing_settled
from cext.store.state cimport STORE_RANGES_REPORTED, STORE_WHY_MAX, Store, StoreLoss, StoreOptions, StoreRecord, StoreStats
from cext.store.store cimport (
    store_append, store_clean_chunk, store_clean_done, store_close, store_error, store_open, store_open_bytes, store_poll,
    store_read, store_read_next, store_recover, store_room, store_scan, store_seal, store_start, store_stats, store_synced,
    store_turn, store_written,
)

NEWS = {"committed": 1, "full": 2, "full_over": 4, "error": 8, "clean": 16, "read": 32, "error_over": 64, "read_error": 128, "low": 512, "low_over": 1024}


def crc(bytes data, hardware=None):
    """Return the CRC-32C of `data`, computed by the processor (True), by the table (False), or by the processor if it can
    (None)."""
    return crc_bytes(crc_hardware() if hardware is None else hardware, 0, data, len(data))


def crc_of_record(bint hardware, uint32_t seed, uint64_t lsn, uint64_t head, bytes body):
    cdef uint16_t check
    cdef uint32_t crc_of_all = crc_record(hardware, seed, lsn, head, body, len(body), &check)
    return crc_of_all, check


def has_hardware_crc():
    return bool(crc_hardware())


cdef dict loss_dict(const StoreLoss* loss):
    return {
        "n": loss.n,
        "ranges": [(loss.ranges[i].lo, None if loss.ranges[i].hi == UINT64_MAX else loss.ranges[i].hi)
                   for i in range(min(loss.n, <uint32_t>STORE_RANGES_REPORTED))],
        "bytes": loss.bytes, "unsynced_bytes": loss.unsynced_bytes, "torn_bytes": loss.torn_bytes, "records": loss.records,
        "batches": loss.batches, "segments": loss.segments, "unreadable": loss.unreadable, "foreign": loss.foreign, "moved": loss.moved,
        "tail_lsn": loss.tail_lsn, "end_lsn": loss.end_lsn, "synced_lsn": loss.synced_lsn,
    }


cdef class Collector:
    """Collects records and passes them to `give` in slices of up to `most` records or `most_bytes` bytes."""
    cdef list slice_
    cdef object give
    cdef Py_ssize_t most
    cdef uint64_t most_bytes
    cdef uint64_t n_bytes
    cdef object error

    cdef int flush(self):
        slice_ = self.slice_
        self.slice_ = []
        self.n_bytes = 0
        if slice_:
            try:
                self.give(slice_)
            except BaseException as e:
                self.error = e
                return 1
        return 0


cdef int store_collect(void* ctx, const StoreRecord* r) noexcept with gil:
    cdef Collector c = <Collector>ctx
    c.slice_.append((r.lsn, r.kind, r.flags, (<const char*>r.body.p)[:r.body.n]))
    c.n_bytes += r.body.n
    if len(c.slice_) >= c.most or c.n_bytes >= c.most_bytes:
        return c.flush()
    return 0


cdef Collector collector(give, Py_ssize_t most):
    cdef Collector c = Collector()
    c.slice_ = []
    c.give = give
    c.most = most
    c.most_bytes = 8 << 20
    return c


def scan(directory, give, most=4096, disk=None, uint64_t from_lsn=0):
    """Read all records of the committed batches of the store in `directory` (live or stopped), in log order. `from_lsn`: the `end_lsn` of
    an earlier scan, behind which this one begins. If `tail_lsn` of the result is greater, records between the two were dropped.

    Calls give([(lsn, kind, flags, body), ...]) with slices of them. Returns the losses and other facts (see StoreLoss). Raises
    OSError with the reason as its text if the store cannot be read."""
    import os
    cdef bytes path = os.fsencode(directory)
    cdef const char* dir_ = path
    cdef StoreLoss loss
    cdef char why[512]
    cdef Collector c = collector(give, most)
    cdef FileOps f = file_ops_of(disk)
    cdef int got
    why[0] = 0
    with nogil:
        got = store_scan(dir_, &f, from_lsn, store_collect, <void*>c, &loss, why, STORE_WHY_MAX)
    if c.error is None and got == 0:
        c.flush()
    if c.error is not None:
        raise c.error
    if got != 0:
        raise OSError(why.decode("utf-8", "replace"))
    return loss_dict(&loss)


def segments(directory, disk=None):
    """Return the segments of the store in `directory` (live or stopped) in log order, as (slot, number, base_lsn), and the slots of
    files with a damaged header or of another store. Raises OSError."""
    import os
    cdef bytes path = os.fsencode(directory)
    cdef const char* dir_ = path
    cdef FileOps f = file_ops_of(disk)
    cdef StoreListing l
    cdef uint32_t i
    cdef int got
    with nogil:
        got = store_listing_settled(&l, &f, crc_hardware(), dir_)
    found = [(l.files[i].slot, l.files[i].h.number, l.files[i].h.base_lsn) for i in range(l.n) if l.files[i].state == SLOT_SEGMENT]
    others = [l.files[i].slot for i in range(l.n) if l.files[i].state == SLOT_ALONE]
    version = l.format
    store_listing_free(&l)
    if got < 0:
        raise OSError(-got, os.strerror(-got), os.fsdecode(path))
    if version:
        raise OSError(f"The store in {os.fsdecode(path)} has format {version}, this version supports {FORMAT} and older")
    return found, others


def segment_read(directory, uint32_t slot, uint64_t number, disk=None):
    """Return the bytes of a segment, to which a broker may be appending, without a gap (see segment_load_live); None if the file does
    not hold segment `number` any more. Raises OSError."""
    import os
    cdef bytes path = os.fsencode(directory)
    cdef const char* dir_ = path
    cdef FileOps f = file_ops_of(disk)
    cdef uint64_t n
    cdef int error
    cdef uint8_t* p
    with nogil:
        p = segment_load_live(&f, crc_hardware(), dir_, slot, number, &n, &error)
    try:
        if error < 0:
            raise OSError(-error, os.strerror(-error), f"{os.fsdecode(path)}/segment.{slot:06}")
        return (<const char*>p)[:n] if p != NULL else None
    finally:
        free(p)


@cython.no_gc_clear             # __dealloc__ closes the files of `disk`, which the collector must not clear first
cdef class PyStore:
    """A store for one thread of Python. Without `start`, `turn` does the work of the storage thread."""
    cdef Store s
    cdef public object disk

    def __cinit__(self, directory, segment_bytes=0, waiting_max_bytes=0, bint never_sync=False, bint create=False, disk=None):
        import os
        cdef bytes path = os.fsencode(directory)
        cdef const char* dir_ = path
        cdef StoreOptions options
        cdef char why[512]
        cdef int got
        memset(&options, 0, sizeof(options))
        options.segment_bytes = segment_bytes
        options.waiting_max_bytes = waiting_max_bytes
        options.sync = never_sync
        options.create = create
        why[0] = 0
        self.disk = disk
        cdef FileOps f
        cdef const FileOps* files = NULL
        if disk is not None:
            f = file_ops_of(disk)
            files = &f
        with nogil:
            got = store_open(&self.s, dir_, &options, files, why, STORE_WHY_MAX)
        if got != 0:
            raise OSError(why.decode("utf-8", "replace"))

    def __dealloc__(self):
        with nogil:
            store_close(&self.s, NULL, 0)

    def recover(self):
        """Return (records, loss)."""
        cdef StoreLoss loss
        cdef list records = []
        cdef Collector c = collector(records.extend, 4096)
        cdef int got
        with nogil:
            got = store_recover(&self.s, store_collect, <void*>c, &loss)
        c.flush()
        if got != 0:
            raise OSError(self.error())
        return records, loss_dict(&loss)

    def start(self):
        if store_start(&self.s) != 0:
            raise OSError(self.error())

    def turn(self):
        with nogil:
            store_turn(&self.s)

    def append(self, uint8_t kind, bytes body, uint8_t flags=0):
        """Append a record to the open batch and return its lsn."""
        cdef uint64_t lsn
        cdef uint8_t* p = store_append(&self.s, kind, flags, <uint32_t>len(body), &lsn)
        if p == NULL:
            raise ValueError("not taken")
        memcpy(p, <const char*>body, len(body))
        return lsn

    def seal(self, bint sync=False):
        return store_seal(&self.s, sync)

    def poll(self):
        return store_poll(&self.s)

    def wait(self, timeout_s=20.0):
        """Wait for news and return them. Raises TimeoutError."""
        import select
        if not select.select([self.s.event_fd], [], [], timeout_s)[0]:
            raise TimeoutError
        return self.poll()

    def room(self):
        return bool(store_room(&self.s))

    def written(self):
        return store_written(&self.s)

    def synced(self):
        return store_synced(&self.s)

    def open_bytes(self):
        return store_open_bytes(&self.s)

    def error(self):
        cdef char why[512]
        store_error(&self.s, why, STORE_WHY_MAX)
        return why.decode("utf-8", "replace")

    def stats(self):
        cdef StoreStats stats
        store_stats(&self.s, &stats)
        return stats

    def live(self, uint64_t n):
        self.s.live_bytes = n

    def clean_chunk(self, most=100):
        """Return the next records to look through."""
        cdef StoreRecord* out = <StoreRecord*>calloc(most, sizeof(StoreRecord))
        cdef uint32_t i, n = store_clean_chunk(&self.s, out, most)
        records = [(out[i].lsn, out[i].kind, out[i].flags, (<const char*>out[i].body.p)[:out[i].body.n]) for i in range(n)]
        free(out)
        return records

    def clean_done(self):
        return bool(store_clean_done(&self.s))

    def read(self, lsns, size_t cookie=0):
        cdef uint64_t* wanted = <uint64_t*>calloc(len(lsns) + 1, sizeof(uint64_t))
        for i, lsn in enumerate(lsns):
            wanted[i] = lsn
        got = store_read(&self.s, wanted, <uint32_t>len(lsns), <void*>cookie)
        free(wanted)
        return got == 0

    def read_next(self, most=1 << 30):
        """Return [(cookie, lsn, kind, flags, body)]."""
        cdef StoreRecord r
        cdef void* cookie
        out = []
        while len(out) < most and store_read_next(&self.s, &cookie, &r):
            out.append((<size_t>cookie, r.lsn, r.kind, r.flags, (<const char*>r.body.p)[:r.body.n]))
        return out

    def abandon(self):
        """Close as if the process were killed: nothing more is written. Only without `start`."""
        self.s.recovered = 0
        with nogil:
            store_close(&self.s, NULL, 0)

    def close(self):
        """Close the store. Return None, or the reason why some of it could not be written."""
        cdef char why[512]
        cdef int got
        why[0] = 0
        with nogil:
            got = store_close(&self.s, why, STORE_WHY_MAX)
        return None if got == 0 else why.decode("utf-8", "replace")
