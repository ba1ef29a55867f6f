# Subscriber lists: the entries of one filter or of one shared group. See subscribers.pyx.
from libc.stdint cimport uint8_t, uint32_t, uintptr_t
from cext.topic.index cimport BLOCK_ENTRIES, FurtherSubscription, Index, List, Owner, SUB_IS_FIRST, Subscription

cdef enum:
    PLACE_BYTES = 24            # size of an Entry and a Subscription*


cdef inline Owner* sub_owner(const Subscription* sub) noexcept nogil:
    return <Owner*>(sub.owner & ~<uintptr_t>SUB_IS_FIRST)


cdef inline List* sub_list(Subscription* sub) noexcept nogil:
    if sub.owner & SUB_IS_FIRST:
        return <List*>(<uint8_t*>sub - <size_t>&(<List*>NULL).first)
    return (<FurtherSubscription*>sub).list


# Return the place of a subscription in a block; only if the list has one (cap > 1).
cdef inline Subscription** sub_place(const List* l, uint32_t i) noexcept nogil:
    if i < BLOCK_ENTRIES:
        return <Subscription**>(l.block + l.cap) + i
    return <Subscription**>(l.places.blocks.more[i // BLOCK_ENTRIES - 1] + BLOCK_ENTRIES) + i % BLOCK_ENTRIES


# Return the subscription at a position, or NULL at a gap.
cdef inline Subscription* list_sub(List* l, uint32_t i) noexcept nogil:
    if l.cap > 1:
        return sub_place(l, i)[0]
    return &l.first if l.places.only.subscriber != NULL else NULL


# The position of a subscription in its list.
cdef uint32_t sub_position(List* l, const Subscription* sub) noexcept nogil
cdef void list_init(List* l, uint32_t flags) noexcept nogil
cdef void list_fini(Index* ix, List* l) noexcept nogil                  # also frees its subscriptions; owners are not touched
cdef Subscription* list_find(Index* ix, List* l, Owner* owner) noexcept nogil
# Add an entry. Return NULL if there is no memory (then nothing changed). The caller has checked
# that the owner is not in the list.
cdef Subscription* list_add(Index* ix, List* l, Owner* owner, void* subscriber, uint8_t options, uint32_t sub_id) noexcept nogil
# Take the subscription out of list and owner, and free it.
cdef void list_drop(Index* ix, Subscription* sub) noexcept nogil
# Close gaps of a list without pins in at most `steps` steps, beginning with the position `fresh` (a
# gap or not; l.n = none), then free memory.
cdef void tidy(Index* ix, List* l, uint32_t fresh, uint32_t steps) noexcept nogil
