# Timer wheel: add, remove and expire are O(1); 5 levels of 64 slots, ticks of 16 ms. A timer is embedded in what it belongs to.
from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    TICK_SHIFT = 4              # 1 tick = 16 ms
    LEVELS = 5
    SLOTS = 64
    WHEEL_FAR_MS = 1 << 30      # longer delays (12 days) fire early: the owner looks at its own due time and adds again

ctypedef struct Timer:
    Timer* prev                 # NULL: not in the wheel
    Timer* next
    uint32_t due_tick           # low half: never further away than WHEEL_FAR_MS
    uint32_t kind               # the owner's: what to do when it fires

ctypedef void (*timer_fn)(void* ctx, Timer* t) noexcept nogil

ctypedef struct Wheel:
    uint64_t start_ms
    uint64_t tick               # all timers up to this tick have fired
    uint32_t count
    uint64_t busy[5]            # LEVELS: bit i set: slot i may hold a timer
    Timer slots[5][64]          # list heads

cdef void wheel_init(Wheel* w, uint64_t now_ms) noexcept nogil
# Fires at the first wheel_advance at or after due_ms; a timer that is in the wheel already is moved.
cdef void wheel_add(Wheel* w, Timer* t, uint64_t due_ms) noexcept nogil
cdef void wheel_remove(Wheel* w, Timer* t) noexcept nogil          # no-op when it is not in
# Takes every due timer out and calls fire(ctx, t) for it; `fire` may add and remove timers. At most `max` fire, so that
# a million sessions that expire together come in slices: returns 1 when more are due now.
cdef bint wheel_advance(Wheel* w, uint64_t now_ms, uint32_t max, timer_fn fire, void* ctx) noexcept nogil
# Milliseconds until the wheel needs to be advanced again (at most, never late); -1: it is empty.
cdef int wheel_timeout_ms(Wheel* w, uint64_t now_ms) noexcept nogil

cdef inline bint timer_armed(Timer* t) noexcept nogil:
    return t.prev != NULL
