# Subscriber lists: the entries of one filter or of one shared group. See subscribers.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.topic.index cimport Index, List, Owner, Slot, Subscription

cdef Slot* list_slot(List* l) noexcept nogil
cdef void list_init(List* l, void* home, uint32_t flags) noexcept nogil
cdef void list_fini(Index* ix, List* l) noexcept nogil                  # frees its subscriptions too; owners are not touched
cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil
# NULL: no memory, nothing changed. Does not look whether the owner is there already.
cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* who, uint8_t options, uint32_t sub_id) noexcept nogil
cdef void list_drop(Index* ix, Subscription* sub) noexcept nogil        # takes it out of list and owner, and frees it
cdef void list_close_gaps(Index* ix, List* l) noexcept nogil
