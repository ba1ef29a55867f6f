# A stream that is read, live or stopped: without a lock, and without writing. One reader goes through one shard; several are independent.
#
#     r = memset 0; reader_open; reader_seek or reader_seek_time; reader_next ... reader_refresh when it says 0 ... reader_close
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport Marks
from cext.journal.journal cimport JournalLoss
from cext.journal.listing cimport Listing
from cext.journal.record cimport JournalRecord
from cext.journal.walk cimport Walk
from cext.store.file cimport FileOps

ctypedef struct Reader:
    FileOps files
    bint hardware
    char dir[3968]              # JOURNAL_PATH_MAX
    uint32_t shard
    bint stale                  # the mark and the listing could not be read: before anything else
    Marks marks
    Listing list                # of the shard
    uint64_t end                # the mark: nothing is read from here on
    uint64_t seq                # to be given next
    JournalLoss loss            # since reader_seek
    uint32_t at                 # in the listing, of the segment that is open (walk.fd >= 0)
    Walk walk
    # the block that is read: its records from block_seq on
    uint64_t block_seq
    uint64_t block_end          # first number behind what is read of it
    uint64_t block_time_us
    uint64_t commit_us
    const uint8_t* next
    const uint8_t* stop

# Each: 0, or -errno. reader_open: -ENOENT: there is no mark, so no stream; -EINVAL: of a later format, or no such shard (r.marks says how many)
cdef int reader_open(Reader* r, const char* dir, uint32_t shard, const FileOps* files) noexcept nogil
cdef void reader_close(Reader* r) noexcept nogil
cdef int reader_refresh(Reader* r) noexcept nogil          # the mark, and what files there are now
cdef int reader_seek(Reader* r, uint64_t seq) noexcept nogil           # behind the end: the end
cdef int reader_seek_time(Reader* r, uint64_t time_us) noexcept nogil  # the first record that is not older
# 1: records from r.seq on are in memory, at r.next, as far as r.block_end; 0: r.seq has reached `until` or the mark; -errno
cdef int reader_load(Reader* r, uint64_t until) noexcept nogil
# 1: the next record, valid until the next call; 0; -errno
cdef int reader_next(Reader* r, uint64_t until, JournalRecord* record) noexcept nogil
# Of the block in memory: the next record, 0: the rest of the block is none (then it is told as damaged)
cdef bint reader_take(Reader* r, JournalRecord* record) noexcept nogil
# What was taken last was of no use: it comes again
cdef void reader_back(Reader* r, uint64_t seq) noexcept nogil
