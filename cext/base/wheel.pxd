# Timer wheel: add, remove and expire are O(1); 5 levels of 64 slots, ticks of 16 ms. A timer is embedded in its owner's struct.
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    TICK_SHIFT = 4              # 1 tick = 16 ms
    WHEEL_LEVELS = 5
    SLOTS = 64
    WHEEL_FAR_MS = 1 << 30      # limit of a delay (12 days); a longer one fires early, and the owner adds it again

ctypedef struct Timer:
    Timer* prev                 # NULL = not in the wheel
    Timer* next
    uint32_t due_tick           # low half of the tick; the distance is at most WHEEL_FAR_MS
    uint32_t kind               # the owner's code for the action when the timer fires

ctypedef void (*timer_fn)(void* ctx, Timer* t) noexcept nogil

ctypedef struct Wheel:
    uint64_t start_ms
    uint64_t tick               # number of the last tick whose timers have all fired
    uint32_t count
    uint64_t busy[5]            # one word for each of the LEVELS; bit i set = slot i may hold a timer
    Timer slots[5][64]          # list heads

cdef void wheel_init(Wheel* w, uint64_t now_ms) noexcept nogil
# The timer fires at the first wheel_advance at or after due_ms. A timer that is already in the wheel is moved.
cdef void wheel_add(Wheel* w, Timer* t, uint64_t due_ms) noexcept nogil
cdef int64_t wheel_left_ms(const Wheel* w, const Timer* t) noexcept nogil     # about the time until it fires; it is in the wheel
cdef void wheel_remove(Wheel* w, Timer* t) noexcept nogil          # no effect if the timer is not in the wheel
# Take out every due timer and call fire(ctx, t) for it. `fire` may add and remove timers. At most `max` timers fire, so that a
# million sessions that expire together are handled in slices. Return 1 if more timers are due now.
cdef bint wheel_advance(Wheel* w, uint64_t now_ms, uint32_t max, timer_fn fire, void* ctx) noexcept nogil
# Return the milliseconds until the next necessary wheel_advance (never too late, possibly too early); -1 = the wheel is empty.
cdef int wheel_timeout_ms(Wheel* w, uint64_t now_ms) noexcept nogil

cdef inline bint timer_armed(Timer* t) noexcept nogil:
    return t.prev != NULL
