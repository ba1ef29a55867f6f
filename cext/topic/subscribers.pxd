# Subscriber lists: the entries of one filter or of one shared group. See subscribers.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.topic.index cimport BLOCK_ENTRIES, Index, List, Owner, SingleBlock, Subscription

cdef enum:
    PLACE_BYTES = 24            # size of an Entry and a Subscription*

cdef SingleBlock* list_slot(List* l) noexcept nogil


cdef inline Subscription** list_sub(const List* l, uint32_t i) noexcept nogil:
    if i < BLOCK_ENTRIES:
        return <Subscription**>(l.block + l.cap) + i
    return <Subscription**>(l.more[i // BLOCK_ENTRIES - 1] + BLOCK_ENTRIES) + i % BLOCK_ENTRIES


cdef void list_init(List* l, uint32_t flags) noexcept nogil
cdef void list_fini(Index* ix, List* l) noexcept nogil                  # also frees its subscriptions; owners are not touched
cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil
# Add an entry. Return NULL if there is no memory (then nothing changed). The caller has checked
# that the owner is not in the list.
cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* subscriber, uint8_t options, uint32_t sub_id) noexcept nogil
# Takes the subscription out of list and owner, and frees it.
cdef void list_drop(Index* ix, Subscription* sub) noexcept nogil
# Close gaps of a list without pins in at most `steps` steps, beginning with the position `fresh` (a
# gap or not), then free memory.
cdef void tidy(Index* ix, List* l, uint32_t fresh, uint32_t steps) noexcept nogil
