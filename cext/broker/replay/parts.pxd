# The parts of a stream: journals that this process, or another worker of the machine, writes. See parts.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream, StreamPart, Streams

# Add a part before the loop begins; the parts come in the order of their numbers. `local`: its journal, if this process has it. Otherwise `dir` is its folder,
# and `place` and `name` are of the worker that writes it, or `name` is empty. Returns -1 without memory.
cdef int part_add(Broker* b, Stream* s, uint32_t number, Stream* local, const char* dir, uint32_t place, const char* name) noexcept nogil
cdef void parts_free(Stream* s) noexcept nogil
# Let the other workers know the own parts, before the storage thread begins.
cdef void parts_announce(Broker* b) noexcept nogil

# ---- the storage thread; part_shards also the loop

cdef uint32_t part_shards(const Stream* s, uint32_t part) noexcept nogil          # 0: it has not begun
cdef uint64_t part_end(const StreamPart* p, uint32_t shard) noexcept nogil      # position behind the last record that may be read
cdef const char* part_dir(const StreamPart* p) noexcept nogil
cdef void parts_published(Streams* t) noexcept nogil            # publish how far the own parts may be read
cdef void parts_want(Streams* t) noexcept nogil                 # be notified when another worker has published more

# ---- the loop

cdef void parts_notice(Broker* b) noexcept nogil                # another worker has published more
