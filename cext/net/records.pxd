# TLS 1.3 records after the handshake: keys, sealing, opening, KeyUpdate, alerts. Sans-IO: no sockets, no buffers.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.net.openssl cimport EVP_CIPHER, EVP_CIPHER_CTX, EVP_MD

cdef enum:
    RECORD_BYTES = 16384        # limit of a record's content [RFC 8446 5.1]
    RECORD_EXTRA = 256          # limit of a record's overhead [5.2]; also enough for a KeyUpdate or an alert beside data
    RECORD_HEADER_BYTES = 5
    EMPTIES_MAX = 32            # limit of records in a row without application data or a KeyUpdate, in a second
    KEY_UPDATES_MAX = 32        # limit of the peer's KeyUpdates per second
    SUITES = 3

cdef enum:
    # content types [5.1]
    TYPE_ALERT = 21
    TYPE_HANDSHAKE = 22
    TYPE_DATA = 23

cdef enum:
    # alerts [6]
    ALERT_CLOSE_NOTIFY = 0
    ALERT_UNEXPECTED_MESSAGE = 10
    ALERT_BAD_RECORD_MAC = 20
    ALERT_RECORD_OVERFLOW = 22
    ALERT_ILLEGAL_PARAMETER = 47
    ALERT_DECODE_ERROR = 50
    ALERT_INTERNAL_ERROR = 80
    ALERT_USER_CANCELED = 90

cdef enum:
    # reasons why no more is read
    ENDED_NOT = 0
    ENDED_BY_CLOSE = 1          # the peer's close_notify
    ENDED_BY_PEER = 2           # another alert from the peer
    ENDED_BY_US = 3             # the peer broke a rule: Records.alert must be sent

cdef enum:
    OPENING = 0
    SEALING = 1

ctypedef struct Half:           # keys and counter of one direction
    uint64_t sequence           # number of the next record
    uint8_t iv[12]
    uint8_t key[32]
    uint8_t secret[48]          # secret from which the next key is derived

ctypedef struct Suite:          # one per loop: the cipher contexts that its connections share
    EVP_CIPHER* cipher          # NULL = OpenSSL does not provide it
    EVP_MD* md
    EVP_CIPHER_CTX* ctx[2]      # OPENING and SEALING
    const Half* owner[2]        # the Half whose key each context holds; NULL = the context is empty
    uint64_t blocks_max         # limit of blocks under one of our keys
    uint16_t id
    uint8_t key_n
    uint8_t secret_n

ctypedef struct Records:        # record state of a connection; zeroed = initial state
    Suite* suite                # NULL until records_begin
    Half peers                  # input direction
    Half ours
    uint64_t blocks             # blocks of 16 bytes sealed under our key; a record's tag is one
    uint64_t counted_s          # second in which the next two fields were counted
    uint8_t renewals            # the peer's KeyUpdates
    uint8_t empties             # records in a row without data
    uint8_t message[5]          # unfinished KeyUpdate message
    uint8_t message_n
    uint8_t update_due          # 1 = our KeyUpdate is due before the next data
    uint8_t ended
    uint8_t alert               # the peer's alert, or the alert to send
    uint8_t peers_n             # size of the learnt secret; 0 = none
    uint8_t ours_n

cdef int suites_init(Suite* suites) noexcept nogil               # array of SUITES; -1 = no memory
cdef void suites_fini(Suite* suites) noexcept nogil
cdef Suite* suite_find(Suite* suites, uint16_t id) noexcept nogil        # NULL = unknown here, or OpenSSL does not provide it

# Read one line of a key log, and store its secret if it is one of application data.
cdef void records_learn(Records* x, const char* line) noexcept nogil
# Begin after the handshake, when `sent` records were already sent under our key. Return -1 if a secret is missing or does not fit
# the suite; then nothing changed.
cdef int records_begin(Records* x, Suite* suite, uint64_t sent) noexcept nogil
cdef void records_end(Records* x) noexcept nogil                 # wipes all of it from memory
# Read all whole records of the n bytes at p, as far as `ended` allows. Return the number of bytes read. Their data is written to
# out, which needs room for n bytes.
cdef size_t records_open(Records* x, const uint8_t* p, size_t n, uint8_t* out, size_t* out_n, uint64_t now_s) noexcept nogil
# Seal one record of at most RECORD_BYTES; p may be out + RECORD_HEADER_BYTES. `out` needs RECORD_EXTRA
# bytes more. Return its size, or -1.
cdef int records_seal(Records* x, uint8_t content, const uint8_t* p, uint32_t n, uint8_t* out) noexcept nogil
# Write the KeyUpdate that is due before data; usually there is none (0 bytes). Return its size, or -1.
cdef int records_renew(Records* x, uint8_t* out) noexcept nogil
cdef int records_alert(Records* x, uint8_t alert, uint8_t* out) noexcept nogil
