# Records as columns in memory, laid out as Arrow has them: values, offsets, bits. For Spark, pandas and the like; no Python object per row.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cext.journal.reader cimport Reader

cdef enum:
    COLUMNS_BYTES_MAX = 1 << 30     # of texts in one batch, about: so that an offset of 32 bits reaches over it
    COLUMNS_ROWS_MAX = 1 << 24

cdef enum:
    # texts, in the order of Columns.texts
    TEXT_TOPIC = 0              # null: empty
    TEXT_CLIENT_ID = 1          # null: empty
    TEXT_USERNAME = 2           # null: none
    TEXT_PAYLOAD = 3            # null: not a message
    TEXT_PROPERTIES = 4         # null: none
    TEXTS = 5

ctypedef struct Text:
    int32_t* offsets            # rows + 1
    uint8_t* bits               # 1: there is one
    uint8_t* p
    uint64_t n                  # bytes
    uint64_t cap
    uint64_t nulls

ctypedef struct Columns:
    uint64_t rows
    uint64_t cap                # rows there is room for
    int32_t* shard
    int64_t* seq
    int64_t* time_us
    int64_t* commit_us
    int8_t* kind
    int8_t* qos
    int16_t* reason
    uint8_t* retain             # bits
    uint8_t* dup                # bits
    Text texts[5]               # TEXTS

# Records from r.seq on, up to `until`, `rows` or about `bytes` of texts: how many there are now, or -errno. c: memset 0 at first; what is there is kept
cdef int64_t columns_read(Columns* c, Reader* r, uint64_t until, uint64_t rows, uint64_t bytes_) noexcept nogil
cdef void columns_free(Columns* c) noexcept nogil
