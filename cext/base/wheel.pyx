"""Implement a hierarchical timer wheel. This module knows milliseconds and embedded list nodes, not the meaning of a timer.

Level l has 64 slots of 64**l ticks each. A timer is in the level that its distance needs. When the wheel passes a slot border of
a higher level, the timers of that slot move down (a cascade). Invariant: `busy` has the bit of every non-empty slot.
Cost: add and remove are O(1); each timer moves at most LEVELS times between add and expiry.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

cdef extern from * nogil:
    int __builtin_ctzll(unsigned long long)


cdef void wheel_init(Wheel* w, uint64_t now_ms) noexcept nogil:
    cdef int level, slot
    memset(w, 0, sizeof(Wheel))
    w.start_ms = now_ms
    for level in range(WHEEL_LEVELS):
        for slot in range(SLOTS):
            w.slots[level][slot].prev = w.slots[level][slot].next = &w.slots[level][slot]


cdef void place(Wheel* w, Timer* t) noexcept nogil:
    cdef uint32_t distance = t.due_tick - <uint32_t>w.tick
    cdef int level = 0
    while level < WHEEL_LEVELS - 1 and distance >= <uint32_t>1 << (6 * (level + 1)):
        level += 1
    cdef uint32_t slot = (t.due_tick >> (6 * level)) & 63
    cdef Timer* head = &w.slots[level][slot]
    t.prev = head.prev
    t.next = head
    head.prev.next = t
    head.prev = t
    w.busy[level] |= <uint64_t>1 << slot


cdef inline void unlink(Timer* t) noexcept nogil:
    t.prev.next = t.next
    t.next.prev = t.prev
    t.prev = NULL
    t.next = NULL


cdef void wheel_add(Wheel* w, Timer* t, uint64_t due_ms) noexcept nogil:
    if t.prev != NULL:
        wheel_remove(w, t)
    cdef uint64_t base_ms = w.start_ms + (w.tick << TICK_SHIFT)
    cdef uint64_t delay_ms = due_ms - base_ms if due_ms > base_ms else 0
    if delay_ms > WHEEL_FAR_MS:
        delay_ms = WHEEL_FAR_MS
    # Round up, so that no timer fires early (except beyond WHEEL_FAR_MS). Add at least one tick,
    # because the present tick has fired.
    cdef uint32_t ticks = <uint32_t>((delay_ms + (1 << TICK_SHIFT) - 1) >> TICK_SHIFT)
    t.due_tick = <uint32_t>w.tick + (ticks if ticks else 1)
    place(w, t)
    w.count += 1


cdef int64_t wheel_left_ms(const Wheel* w, const Timer* t) noexcept nogil:
    return <int64_t><int>(t.due_tick - <uint32_t>w.tick) << TICK_SHIFT


cdef void wheel_remove(Wheel* w, Timer* t) noexcept nogil:
    if t.prev == NULL:
        return
    unlink(t)                    # the busy bit may stay set, which costs only one look-up
    w.count -= 1


cdef void cascade(Wheel* w, int level) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(w.tick >> (6 * level)) & 63
    cdef Timer* head = &w.slots[level][slot]
    cdef Timer* t = head.next
    cdef Timer* following
    head.prev = head.next = head
    w.busy[level] &= ~(<uint64_t>1 << slot)
    while t != head:
        following = t.next
        place(w, t)
        t = following
    if slot == 0 and level + 1 < WHEEL_LEVELS:
        cascade(w, level + 1)


cdef bint wheel_advance(Wheel* w, uint64_t now_ms, uint32_t max, timer_fn fire, void* ctx) noexcept nogil:
    cdef uint64_t target = (now_ms - w.start_ms) >> TICK_SHIFT
    cdef uint32_t slot
    cdef Timer* head
    cdef Timer* t
    while target > w.tick:
        if w.count == 0:
            w.tick = target
            break
        slot = <uint32_t>(w.tick + 1) & 63
        head = &w.slots[0][slot]
        if slot == 0:
            w.tick += 1          # at a border, timers due in the next 64 ticks move down first
            cascade(w, 1)
        else:
            w.tick += 1
        while head.next != head:
            if max == 0:
                w.tick -= 1      # the next call begins with this slot again
                return 1
            max -= 1
            t = head.next
            unlink(t)
            w.count -= 1
            fire(ctx, t)
        w.busy[0] &= ~(<uint64_t>1 << slot)
    return 0


cdef int wheel_timeout_ms(Wheel* w, uint64_t now_ms) noexcept nogil:
    if w.count == 0:
        return -1
    # the nearest busy slot of level 0 in this round, else the border at which timers of other levels move down
    cdef uint32_t slot = <uint32_t>w.tick & 63
    cdef uint64_t ahead = w.busy[0] >> slot >> 1 if slot < 63 else 0
    cdef uint32_t ticks = <uint32_t>__builtin_ctzll(ahead) + 1 if ahead else next_border(w)
    cdef uint64_t due_ms = w.start_ms + ((w.tick + ticks) << TICK_SHIFT)
    if due_ms <= now_ms:
        return 0
    return <int>(due_ms - now_ms) if due_ms - now_ms < 1 << 30 else 1 << 30


cdef uint32_t next_border(Wheel* w) noexcept nogil:
    """Return the ticks to the next border of level 1 at which a timer may move down: possibly too few, never too many."""
    cdef uint32_t to_border = 64 - <uint32_t>(w.tick & 63)
    if w.busy[0] != 0:
        return to_border         # a timer in a slot of level 0 of the next round
    cdef uint32_t slot = <uint32_t>(w.tick >> 6) & 63
    cdef uint64_t ahead = w.busy[1] >> slot >> 1 if slot < 63 else 0
    if ahead:
        return to_border + 64 * <uint32_t>__builtin_ctzll(ahead)
    return to_border + 64 * (63 - slot)
