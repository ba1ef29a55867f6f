# A state that is being restored: what the modules of restoring share. See restore.pyx.
from libc.stdint cimport int32_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.handover_state cimport HandoverCounts
from cext.broker.handover.image cimport ImageReader, ImageSession
from cext.session.message cimport Message, message_ref
from cext.session.session cimport Session

ctypedef struct Restoring:
    Broker* b
    ImageReader r
    const int32_t* fds
    uint32_t n_fds
    HandoverCounts* counts
    Message** messages          # each a reference; number 1 is the first
    uint32_t n_messages
    uint32_t cap_messages
    Session* session            # the session that the next items belong to
    ImageSession head           # its item
    uint32_t n_deliveries       # its deliveries so far
    uint32_t place              # position behind the last one
    Client* client              # the client that the next aliases belong to
    uint32_t n_clients
    View retained               # topic of the last retained message; p NULL: none
    bint begun
    bint ended
    const char* wrong           # reason of the refusal


cdef inline int refused(Restoring* l, const char* why) noexcept nogil:
    l.wrong = why
    return -1


cdef inline bint message_known(const Restoring* l, uint32_t number) noexcept nogil:
    return number <= l.n_messages


cdef inline Message* message_numbered(const Restoring* l, uint32_t number) noexcept nogil:
    """Return the message with this number, with a reference for the caller; NULL for 0."""
    return message_ref(l.messages[number - 1]) if number else NULL
