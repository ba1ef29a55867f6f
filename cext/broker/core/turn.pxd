# The budget of a turn: the work that all clients together may cause in one turn of the loop (option turn_budget, ADR 3).
#
#   packets of clients: one budget     -> connections whose input waits, in order, until it is used up
#                                      -> connections with new input: each handles at least one packet
#   jobs:               one budget     -> one slice after another, in turn
#
# A packet that would cause more work than it may becomes a job, and its client waits. As long as the budget is not used up a packet
# may cause one budget of work; afterwards TURN_SHARE of it. So a client with little input is served in each turn, however many
# others have much. A turn exceeds the two budgets by at most one budget, and one share for each connection with new input.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker

cdef enum:
    TURN_SHARE = 200            # part of the budget that a connection has when the budget is used up
    MATCH_SHARE = 20            # part of the budget that the match of one packet may take at once


cdef inline void turn_begin(Broker* b) noexcept nogil:
    b.turn_limit = b.work + b.settings.turn_budget


cdef inline bint turn_is_over(const Broker* b) noexcept nogil:
    return b.work >= b.turn_limit


# Return the value of b.work at which a connection stops to handle packets. It is greater than the present value.
cdef inline uint64_t turn_input_limit(const Broker* b) noexcept nogil:
    cdef uint64_t least = b.work + b.settings.turn_budget // TURN_SHARE + 1
    return least if least > b.turn_limit else b.turn_limit


# Return the work that one fan-out may cause at once.
cdef inline uint64_t turn_fanout_max(const Broker* b) noexcept nogil:
    return b.settings.turn_budget if not turn_is_over(b) else b.settings.turn_budget // TURN_SHARE


# Return the steps that the match of one message may take at once.
cdef inline uint64_t turn_match_steps(const Broker* b) noexcept nogil:
    return b.settings.turn_budget // MATCH_SHARE if not turn_is_over(b) else b.settings.turn_budget // TURN_SHARE
