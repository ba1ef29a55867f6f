# How many log lines of one kind one network causes, and which addresses have caused one.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.net.conn_state cimport Address

cdef enum:
    # kinds of lines that a client without an account can cause
    LINE_ACCEPTED = 0           # New connection from
    LINE_DENIED = 1             # Client connection from ... denied
    LINE_PROTOCOL = 2           # Protocol error, TLS on a plain listener, errors of OpenSSL
    LINE_CONNECTED = 3          # New client connected
    LINE_ENDED = 4              # Client ... disconnected
    LINE_REFUSED = 5            # a login was refused
    LINE_KINDS = 6
    LOG_RATE_SETS = 128
    LOG_RATE_WAYS = 4
    LOG_FIRST_SETS = 512
    LOG_RATE_WINDOW_S = 10
    LOG_RATE_NETWORKS = 10      # all networks together may cause as many lines of a kind as this many

ctypedef struct LogRate:
    uint64_t hash               # of kind and network; 0 = free
    uint32_t seen               # lines in this window, also those that were not logged
    uint32_t left_out
    uint8_t kind
    Address network             # the address whose last bits are 0

ctypedef struct LogRates:
    HashKey key
    LogRate slots[512]          # LOG_RATE_SETS * LOG_RATE_WAYS
    uint32_t logged[6]          # LINE_KINDS: lines of all networks
    uint32_t others[6]          # LINE_KINDS: lines of networks without a slot
    uint32_t left_out[6]        # LINE_KINDS: of these, not logged
    uint64_t met[2048]          # LOG_FIRST_SETS * LOG_RATE_WAYS: hashes of kind and address that caused a line in this window; 0 = free

# Return a new table with a random key; NULL: no memory.
cdef LogRates* log_rates_new() noexcept nogil
# Return the source network of an address: an IPv4 /24 or an IPv6 /56, with the last bits and all other fields 0.
cdef void source_network(const Address* a, Address* out) noexcept nogil
# Count a line and return whether it may be logged: at most `most` of a kind and network in a window, and the first one of each address.
cdef bint log_rate_count(LogRates* t, const Address* a, int kind, uint32_t most) noexcept nogil
# Return the length of the networks that are counted, as in "/24"; "" for other families.
cdef const char* log_rate_mask(int family) noexcept nogil
# Begin a new window.
cdef void log_rates_clear(LogRates* t) noexcept nogil
