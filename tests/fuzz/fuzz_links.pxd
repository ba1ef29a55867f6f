from libc.stdint cimport uint8_t, uint64_t

# Fuzz targets of the links between workers: one frame; bytes of another worker into the real state machine.
cdef uint64_t link_frame(const uint8_t* p, size_t n) noexcept nogil
cdef uint64_t link_bytes(const uint8_t* p, size_t n) noexcept nogil
