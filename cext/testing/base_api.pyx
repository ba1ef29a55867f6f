"""Test API of the base room: thin classes over its structs."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libc.stdlib cimport calloc, free

from cext.base.buffer cimport Buffers, buffer_give, buffer_take, buffers_fini, buffers_init
from cext.base.cells cimport Cells, cells_bytes, cells_fini, cells_give, cells_take, cells_take_zeroed
from cext.base.histogram cimport HISTOGRAM_BUCKETS, Histogram, histogram_add, histogram_place, histogram_until
from cext.base.hash cimport HashKey, hash_bytes, hash_key_init, hash_proof
from cext.base.sketch cimport SKETCH_CHAINS, Sketch, sketch_add, sketch_clear, sketch_kept, sketch_least, sketch_most
from cext.base.slab cimport Slab, SlabItem, slab_at, slab_bytes, slab_fini, slab_give, slab_init, slab_take
from cext.base.wheel cimport Timer, Wheel, timer_armed, wheel_add, wheel_advance, wheel_init, wheel_remove, wheel_timeout_ms


cdef void note_fired(void* ctx, Timer* t) noexcept with gil:
    cdef PyWheel face = <PyWheel>ctx
    face.fired.append(t.kind)
    for number, due_ms in face.on_fire.pop(t.kind, ()):
        face.add(number, due_ms)


cdef class PyWheel:
    """A timer wheel whose timers are numbers 0..n-1. `on_fire[number]` = (number, due_ms) pairs to add when that timer fires."""
    cdef Wheel wheel
    cdef Timer* timers
    cdef public list fired
    cdef public dict on_fire

    def __cinit__(self, uint32_t n, uint64_t now_ms):
        cdef uint32_t i
        self.timers = <Timer*>calloc(n, sizeof(Timer))
        for i in range(n):
            self.timers[i].kind = i
        self.fired = []
        self.on_fire = {}
        wheel_init(&self.wheel, now_ms)

    def __dealloc__(self):
        free(self.timers)

    def add(self, uint32_t number, uint64_t due_ms):
        wheel_add(&self.wheel, &self.timers[number], due_ms)

    def remove(self, uint32_t number):
        wheel_remove(&self.wheel, &self.timers[number])

    def armed(self, uint32_t number):
        return timer_armed(&self.timers[number])

    def advance(self, uint64_t now_ms, uint32_t most=1 << 30):
        """Fire due timers. Return (numbers that fired, whether more are due)."""
        self.fired = []
        more = wheel_advance(&self.wheel, now_ms, most, note_fired, <void*>self)
        return self.fired, bool(more)

    def timeout_ms(self, uint64_t now_ms):
        return wheel_timeout_ms(&self.wheel, now_ms)

    def count(self):
        return self.wheel.count


cdef class PySlab:
    cdef Slab slab

    def __cinit__(self, uint32_t item_bytes, uint32_t block_items, uint32_t idle_max=0xFFFFFFFF):
        slab_init(&self.slab, item_bytes, block_items, idle_max)

    def __dealloc__(self):
        slab_fini(&self.slab)

    def take(self):
        """Take an object: check that the bytes after its head are zero, then fill them. Return (index, generation)."""
        cdef uint8_t* p = <uint8_t*>slab_take(&self.slab)
        cdef uint32_t i
        for i in range(sizeof(SlabItem), self.slab.item_bytes):
            assert p[i] == 0, "not cleared"
            p[i] = 0xA5
        return (<SlabItem*>p).index, (<SlabItem*>p).generation

    def give(self, uint32_t index):
        slab_give(&self.slab, slab_at(&self.slab, index))

    def generation(self, uint32_t index):
        """Return the generation of the object at this index; None = no object is taken there."""
        cdef SlabItem* item = <SlabItem*>slab_at(&self.slab, index)
        return None if item == NULL else item.generation

    def counts(self):
        return self.slab.used, self.slab.idle

    def bytes(self):
        return slab_bytes(&self.slab)


cdef class PyBuffers:
    cdef Buffers buffers
    cdef dict taken

    def __cinit__(self, uint64_t idle_max_bytes):
        buffers_init(&self.buffers, idle_max_bytes)
        self.taken = {}

    def __dealloc__(self):
        for p, cap in list(self.taken.items()):
            buffer_give(&self.buffers, <void*><size_t>p, cap)
        buffers_fini(&self.buffers)

    def take(self, size_t n):
        """Take a buffer and write every byte of it. Return (address, capacity)."""
        cdef uint32_t cap
        cdef uint8_t* p = buffer_take(&self.buffers, n, &cap)
        cdef uint32_t i
        for i in range(cap):
            p[i] = 0x5A
        self.taken[<size_t>p] = cap
        return <size_t>p, cap

    def give(self, size_t p):
        buffer_give(&self.buffers, <void*>p, self.taken.pop(p))

    def counts(self):
        """Return (used bytes, idle bytes)."""
        return self.buffers.used_bytes, self.buffers.idle_bytes


cdef class PyCells:
    """Cells whose objects are numbers. Each is filled with its own byte value, and `give` checks that the bytes are unchanged."""
    cdef Cells cells
    cdef dict objects
    cdef int serial

    def __cinit__(self):
        memset(&self.cells, 0, sizeof(Cells))
        self.objects = {}

    def __dealloc__(self):
        for number in list(self.objects):
            self.give(number)
        cells_fini(&self.cells)

    def take(self, size_t n, zeroed=False):
        cdef uint8_t* p = <uint8_t*>(cells_take_zeroed(&self.cells, n) if zeroed else cells_take(&self.cells, n))
        if p == NULL:
            raise MemoryError
        if <size_t>p % 16:
            raise AssertionError("not aligned")
        if zeroed and p[:n] != bytes(n):
            raise AssertionError("not zeroed")
        self.serial += 1
        memset(p, self.serial & 255, n)
        self.objects[self.serial] = (<size_t>p, n)
        return self.serial

    def give(self, number):
        at, n = self.objects.pop(number)
        p = <uint8_t*><size_t>at
        if p[:<size_t>n] != bytes([number & 255]) * n:
            raise AssertionError("overwritten")
        cells_give(&self.cells, p, n)

    def used_bytes(self):
        return self.cells.used_bytes

    def mapped_bytes(self):
        return self.cells.mapped_bytes

    def counted_bytes(self):
        """Return used_bytes, computed from the objects that exist."""
        return sum(cells_bytes(<void*><size_t>at, n) for at, n in self.objects.values())


def histogram_of(durations):
    """Return (count, sum, number in each bucket) of durations in ns."""
    cdef Histogram h
    cdef uint64_t ns
    memset(&h, 0, sizeof(h))
    for ns in durations:
        histogram_add(&h, ns)
    return h.count, h.sum_ns, [h.buckets[i] for i in range(HISTOGRAM_BUCKETS)]


def histogram_bucket(uint64_t ns):
    return histogram_place(ns)


def histogram_limits():
    """Return the shortest duration that is too long for each bucket."""
    return [histogram_until(i) for i in range(HISTOGRAM_BUCKETS)]


cdef class PySketch:
    """A sketch; its methods take names as bytes. The hash is that of one key for all."""
    cdef Sketch* s
    cdef HashKey key

    def __cinit__(self):
        self.s = <Sketch*>calloc(1, sizeof(Sketch))
        if self.s == NULL or hash_key_init(&self.key) != 0:
            raise MemoryError

    def __dealloc__(self):
        free(self.s)

    def add(self, name: bytes, uint64_t weight=1, uint64_t n_bytes=0):
        sketch_add(self.s, hash_bytes(&self.key, <const uint8_t*><const char*>name, len(name)), <const uint8_t*><const char*>name, <uint32_t>len(name), weight, n_bytes)

    def most(self, name: bytes, uint64_t value):
        sketch_most(self.s, hash_bytes(&self.key, <const uint8_t*><const char*>name, len(name)), <const uint8_t*><const char*>name, <uint32_t>len(name), value)

    def clear(self):
        sketch_clear(self.s)

    def least(self):
        return sketch_least(self.s)

    def names(self):
        """Return (beginning, length, count, error, bytes) of each name."""
        return [(<bytes>(<const char*>self.s.texts[i])[:sketch_kept(&self.s.names[i])], self.s.names[i].length, self.s.names[i].count,
                 self.s.names[i].error, self.s.names[i].bytes) for i in range(self.s.n)]

    def check(self):
        """Assert that the heap is ordered and that each name is in its chain."""
        cdef uint32_t i
        for i in range(self.s.n):
            assert self.s.names[self.s.heap[i]].place == i
            assert i == 0 or self.s.names[self.s.heap[(i - 1) // 2]].count <= self.s.names[self.s.heap[i]].count
        chained = []
        for i in range(SKETCH_CHAINS):
            at = self.s.chains[i]
            while at:
                assert self.s.names[<uint32_t>at - 1].hash % SKETCH_CHAINS == i
                chained.append(at - 1)
                at = self.s.names[<uint32_t>at - 1].next
        assert sorted(chained) == list(range(self.s.n))


def proof_of(bytes key, bytes data):
    """Return SipHash-2-4 with 128 bits of result."""
    cdef HashKey k
    cdef uint64_t proof[2]
    memcpy(&k, <const char*>key, sizeof(k))
    hash_proof(&k, <const uint8_t*><const char*>data, len(data), proof)
    return (<const char*>proof)[:sizeof(proof)]
