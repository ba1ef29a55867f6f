# TLS 1.3 records once the handshake is done: keys, sealing, opening, KeyUpdate, alerts. Sans-IO: neither sockets nor buffers.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.net.openssl cimport EVP_CIPHER, EVP_CIPHER_CTX, EVP_MD

cdef enum:
    RECORD_BYTES = 16384        # of content, at most [RFC 8446 5.1]
    RECORD_EXTRA = 256          # around it in a record, at most [5.2]; also what stands beside data: a KeyUpdate, an alert
    RECORD_HEADER_BYTES = 5
    EMPTIES_MAX = 32            # records in a row without application data or a KeyUpdate, in a second
    KEY_UPDATES_MAX = 32        # of the peer's, per second
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
    # why nothing more is read
    ENDED_NOT = 0
    ENDED_BY_CLOSE = 1          # the peer's close_notify
    ENDED_BY_PEER = 2           # another alert of the peer's
    ENDED_BY_US = 3             # it broke a rule: Records.alert is to be said

cdef enum:
    OPENING = 0
    SEALING = 1

ctypedef struct Half:           # one direction
    uint64_t sequence           # of the next record
    uint8_t iv[12]
    uint8_t key[32]
    uint8_t secret[48]          # of the next key

ctypedef struct Suite:          # one per loop: what the connections of a loop share
    EVP_CIPHER* cipher          # NULL: OpenSSL has not got it
    EVP_MD* md
    EVP_CIPHER_CTX* ctx[2]      # OPENING, SEALING
    const Half* owner[2]        # whose key each of them holds; NULL: it holds none, nor anything else
    uint64_t blocks_max         # under one of our keys
    uint16_t id
    uint8_t key_n
    uint8_t secret_n

ctypedef struct Records:        # zeros: nothing is known yet
    Suite* suite                # NULL until records_begin
    Half peers                  # what comes
    Half ours
    uint64_t blocks             # of 16 bytes, sealed under our key; a record's tag is one
    uint64_t counted_s          # the second in which the next two were counted
    uint8_t renewals            # KeyUpdates of the peer's
    uint8_t empties             # in a row
    uint8_t message[5]          # a KeyUpdate that has not come whole
    uint8_t message_n
    uint8_t owed                # our KeyUpdate, before the next data
    uint8_t ended
    uint8_t alert               # the peer's, or that which is due
    uint8_t peers_n             # size of the secret that was learnt; 0: none
    uint8_t ours_n

cdef int suites_init(Suite* suites) noexcept nogil               # SUITES of them; -1: no memory
cdef void suites_fini(Suite* suites) noexcept nogil
cdef Suite* suite_find(Suite* suites, uint16_t id) noexcept nogil        # NULL: not one of these, or OpenSSL has not got it

# One line of a key log: takes a secret of application data from it, if that is what it holds.
cdef void records_learn(Records* x, const char* line) noexcept nogil
# The handshake is done, and `sent` records went out under our key already. -1: a secret is missing, or does not fit the suite; then nothing is changed.
cdef int records_begin(Records* x, Suite* suite, uint64_t sent) noexcept nogil
# Whether these are of one key schedule [RFC 8446 7.1]: the handshake's secret, the master secret, the hash of what was said up to the server's
# Finished, our first secret of application data, and the exporter's.
cdef bint records_related(const Suite* s, const uint8_t* handshake, const uint8_t* master, const uint8_t* said, const uint8_t* ours,
                          const uint8_t* exporter) noexcept nogil
cdef void records_end(Records* x) noexcept nogil                 # nothing of it stays in memory
# How many of the n bytes at p are done with: all whole records, as far as `ended` allows. Their data is put at out, which has room for n.
cdef size_t records_open(Records* x, const uint8_t* p, size_t n, uint8_t* out, size_t* out_n, uint64_t now_s) noexcept nogil
# One record of at most RECORD_BYTES; p may be out + RECORD_HEADER_BYTES. out has room for RECORD_EXTRA more. Its size, or -1.
cdef int records_seal(Records* x, uint8_t content, const uint8_t* p, uint32_t n, uint8_t* out) noexcept nogil
# Before data: the KeyUpdate that is due, as a rule none (0 bytes). -1: as above.
cdef int records_renew(Records* x, uint8_t* out) noexcept nogil
cdef int records_say(Records* x, uint8_t alert, uint8_t* out) noexcept nogil
