# The relay: the least that a broker can cost. relay.pyx describes it.
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    RELAY_CHAINS = 1 << 14      # chains of the table of topics
    RELAY_PREFIXES = 8          # different lengths of the prefixes before `/#`
    RELAY_READ_BYTES = 512 * 1024
    RELAY_EVENTS = 512
    RELAY_ACCEPTS = 64          # connections that are accepted in one turn

ctypedef struct RelayPeer:      # a connection
    int fd
    uint8_t version             # of its CONNECT; 0 = it has sent none
    uint8_t listed              # 1 = it is in Relay.dirty
    uint8_t blocked             # 1 = its socket is full, and EPOLLOUT continues
    uint32_t n_filters
    uint8_t* held               # the beginning of an incomplete frame
    size_t held_n
    size_t held_cap
    uint8_t* out                # output that is not sent: the bytes from out_at to out_n
    size_t out_at
    size_t out_n
    size_t out_cap

ctypedef struct RelayTopic:     # a filter without wildcards, or the part of one before `/#`
    RelayTopic* next
    uint8_t* name
    uint32_t n
    uint32_t is_prefix
    RelayPeer** peers
    uint32_t n_peers
    uint32_t cap_peers

ctypedef struct RelayState:
    int ep
    int listener
    RelayPeer** by_fd           # NULL = no connection has this descriptor
    uint32_t by_fd_cap
    RelayPeer** dirty           # the connections with output of this turn
    uint32_t n_dirty
    uint32_t dirty_cap
    RelayTopic** chains
    uint32_t n_exact            # topics that are no prefix
    uint32_t prefix_n[8]        # the lengths of prefixes, at most RELAY_PREFIXES
    uint32_t n_prefixes
    uint8_t* buffer

cdef bint relay_turn(RelayState* r, int timeout_ms) noexcept nogil     # 0 = no event, or a signal
