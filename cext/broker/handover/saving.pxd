# A state that is being saved: what the modules of saving share. See save.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.handover_state cimport Handover
from cext.broker.handover.image cimport ImageWriter, image_item
from cext.session.message cimport Message

ctypedef struct Saving:
    Broker* b
    Handover* h
    ImageWriter w
    const Message** seen        # messages in the file, by address: open addressing, at most half full
    uint32_t* numbers
    uint64_t mask
    uint32_t n_messages
    uint32_t fds_cap


cdef inline void* struct_put(Saving* v, int kind, size_t n, uint64_t more) noexcept nogil:
    """Return room for a struct, which is zeroed, and `more` bytes behind it."""
    return image_item(&v.w, kind, n + more)

cdef inline uint8_t* bytes_put(uint8_t* out, const void* p, uint32_t n) noexcept nogil:
    if n:
        memcpy(out, p, n)
    return out + n

cdef inline uint8_t* part_put(uint8_t* out, View view) noexcept nogil:
    return bytes_put(out, view.p, view.n if view.p != NULL else 0)

# Return the number of a message, which is written when it is first needed; 0 = none.
cdef uint32_t message_saved(Saving* v, const Message* m) noexcept nogil
