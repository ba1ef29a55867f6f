# Read a stream, live or stopped, without a lock and without writing. One reader reads one shard; several readers are independent.
#
#     r = memset 0; reader_open; reader_seek or reader_seek_time; reader_next ... reader_refresh after 0 ... reader_close
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport Marks
from cext.journal.journal cimport JournalLoss
from cext.journal.listing cimport SegmentListing
from cext.journal.record cimport JournalRecord
from cext.journal.walk cimport JournalWalk
from cext.store.file cimport FileOps

ctypedef struct Reader:
    FileOps files
    bint hardware
    char dir[3968]              # size = JOURNAL_PATH_MAX
    uint32_t shard
    bint stale                  # the mark and the folder could not be read: refresh first
    Marks marks
    SegmentListing list         # segments of the shard
    uint64_t end                # the mark: nothing is read from this number on
    uint64_t seq                # number of the next record
    JournalLoss loss            # losses since reader_seek
    uint32_t at                 # place of the open segment in the listing (walk.fd >= 0)
    JournalWalk walk
    char node[65]               # JOURNAL_NODE_MAX + 1: node of the open segment, and so of the block in memory
    # the block in memory: its records from block_seq on
    uint64_t block_seq
    uint64_t block_end          # first number after the records in memory
    uint64_t block_time_us
    uint64_t commit_us
    const uint8_t* next
    const uint8_t* stop

# Each returns 0 or -errno. reader_open: -ENOENT = there is no mark, so no stream; -EINVAL = a later format, or no such shard
# (r.marks has the number of shards)
cdef int reader_open(Reader* r, const char* dir, uint32_t shard, const FileOps* files) noexcept nogil
cdef void reader_close(Reader* r) noexcept nogil
cdef int reader_refresh(Reader* r) noexcept nogil          # reads the mark and the folder again
cdef int reader_seek(Reader* r, uint64_t seq) noexcept nogil           # seq behind the end = the end
cdef int reader_seek_time(Reader* r, uint64_t time_us) noexcept nogil  # seeks to the first record that is not older
# Load a block. Return 1 if records from r.seq on are in memory, at r.next, up to r.block_end; 0 if r.seq has reached `until` or
# the mark; or -errno.
cdef int reader_load(Reader* r, uint64_t until) noexcept nogil
# Return 1 and the next record, valid until the next call; 0; or -errno.
cdef int reader_next(Reader* r, uint64_t until, JournalRecord* record) noexcept nogil
# Return the next record of the block in memory. 0 = the rest of the block holds none, and is then reported as damaged.
cdef bint reader_take(Reader* r, JournalRecord* record) noexcept nogil
# Go back to `seq`, because the caller could not use the last record: it is returned again.
cdef void reader_back(Reader* r, uint64_t seq) noexcept nogil
