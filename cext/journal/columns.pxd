# Records as columns in memory in Arrow's layout: values, offsets, bits. For Spark, pandas and similar programs; no row is a
# Python object.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cext.journal.reader cimport Reader

cdef enum:
    COLUMNS_BYTES_MAX = 1 << 30     # approximate bytes of texts in a batch, so that an offset fits 32 bits
    COLUMNS_ROWS_MAX = 1 << 24

cdef enum:
    # texts, in the order of Columns.texts
    TEXT_TOPIC = 0              # null = empty
    TEXT_CLIENT_ID = 1          # null = empty
    TEXT_USERNAME = 2           # null = no user name
    TEXT_PAYLOAD = 3            # null = not a message
    TEXT_PROPERTIES = 4         # null = no properties
    TEXTS = 5

ctypedef struct Text:
    int32_t* offsets            # rows + 1 offsets
    uint8_t* bits               # bit 1 = the row has a value
    uint8_t* p
    uint64_t n                  # size in bytes
    uint64_t cap
    uint64_t nulls

ctypedef struct Columns:
    uint64_t rows
    uint64_t cap                # number of rows that fit
    int32_t* shard
    int64_t* seq
    int64_t* time_us
    int64_t* commit_us
    int8_t* kind
    int8_t* qos
    int16_t* reason
    uint8_t* retain             # one bit per row
    uint8_t* dup                # one bit per row
    Text texts[5]               # size = TEXTS
    char node[65]               # JOURNAL_NODE_MAX + 1: node of all rows (docs/journal.md); empty = none

# Append records from r.seq on, up to `until`, `rows` or about `bytes_` of texts, or to the first one of another node. Return the
# number of rows in c, or -errno. Zero
# c before the first call; existing rows are kept.
cdef int64_t columns_read(Columns* c, Reader* r, uint64_t until, uint64_t rows, uint64_t bytes_) noexcept nogil
cdef void columns_free(Columns* c) noexcept nogil
