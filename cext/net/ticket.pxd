# The ticket of a relayed connection, sans-IO: the proof that the bytes in front of a client's come from another broker process. See ticket.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.net.relay_head cimport RelayHead

cdef enum:
    TICKET_BEGIN = 16           # bytes in front of the head
    TICKET_PROOF = 16           # bytes behind it
    TICKET_BYTES = 32           # both
    TICKET_WINDOW = 1 << 16     # numbers below the highest one that are still taken

cdef enum:
    TICKET_OTHER = -2           # the connection does not begin with a ticket
    TICKET_BAD = -1             # it does, and the head is wrong
    TICKET_MORE = 0
    TICKET_DONE = 1             # it is complete; ticket_take judges it

cdef enum:
    TICKET_TAKEN = 0
    TICKET_FORGED = 1           # the key is not the one of this pair of processes, or a byte was changed
    TICKET_AGAIN = 2            # its number was used before
    TICKET_LATE = 3             # its number is below the window

ctypedef struct TicketKey:
    # of one direction between two processes. Both sides have the key; one counts, the other one notes
    HashKey key
    uint64_t number             # the last one that was given, or the highest one that was taken
    uint64_t* taken             # a bit for each of the last TICKET_WINDOW numbers; NULL: this side gives numbers
    uint8_t known               # 1: there is a key

ctypedef struct Ticket:
    uint32_t slot               # the worker that claims to have sent it
    uint64_t number
    uint32_t size               # TICKET_DONE: bytes with the head; TICKET_MORE: bytes that it needs, 0 = unknown
    RelayHead head              # its views point to the bytes that were read

# Set the key; notes: this side takes tickets. Return -1 if there is no memory.
cdef int ticket_key_set(TicketKey* key, const HashKey* value, bint notes) noexcept nogil
cdef void ticket_key_forget(TicketKey* key) noexcept nogil
# Return the bytes of a ticket with its head; 0: a name is too long. ticket_put writes exactly that many, with the next number.
cdef uint32_t ticket_size(const RelayHead* h) noexcept nogil
cdef void ticket_put(uint8_t* out, TicketKey* key, uint32_t slot, const RelayHead* h) noexcept nogil
# Read a ticket. p: the first n bytes of the connection.
cdef int ticket_read(const uint8_t* p, size_t n, Ticket* out) noexcept nogil
# Judge the ticket that was read from p, and note its number if it is right. Return TICKET_TAKEN or the reason against it.
cdef int ticket_take(TicketKey* key, const uint8_t* p, const Ticket* t) noexcept nogil
