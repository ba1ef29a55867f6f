"""Encode and decode the header of a segment. One copy: magic, format, bytes used, store id, number, base, tail, capacity, sync_failed, crc."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memset

from cext.base.words cimport load32, load64, store32, store64
from cext.store.crc cimport crc_bytes

cdef const char* MAGIC = b"mosqlog\n"


cdef void header_seed(bint hardware, Header* h) noexcept nogil:
    cdef uint8_t salt[24]
    memcpy(salt, h.store_id, 16)
    store64(salt + 16, h.number)
    h.seed = crc_bytes(hardware, 0, salt, 24)


cdef void header_copy_write(bint hardware, uint8_t* p, const Header* h) noexcept nogil:
    memset(p, 0, HEADER_USED)
    memcpy(p, MAGIC, 8)
    store32(p + 8, FORMAT)
    store32(p + 12, HEADER_BYTES)
    memcpy(p + 16, h.store_id, 16)
    store64(p + 32, h.number)
    store64(p + 40, h.base_lsn)
    store64(p + 48, h.tail_lsn)
    store64(p + 56, h.capacity)
    p[64] = h.sync_failed
    store32(p + HEADER_USED - 4, crc_bytes(hardware, 0, p, HEADER_USED - 4))


cdef void header_write(bint hardware, uint8_t* p, const Header* h) noexcept nogil:
    memset(p, 0, HEADER_BYTES)
    header_copy_write(hardware, p, h)
    header_copy_write(hardware, p + HEADER_COPY, h)


cdef int header_copy_read(bint hardware, const uint8_t* p, Header* h) noexcept nogil:
    if memcmp(p, MAGIC, 8) != 0 or load32(p + HEADER_USED - 4) != crc_bytes(hardware, 0, p, HEADER_USED - 4):
        return -1
    h.format = load32(p + 8)
    memcpy(h.store_id, p + 16, 16)
    h.number = load64(p + 32)
    h.base_lsn = load64(p + 40)
    h.tail_lsn = load64(p + 48)
    h.capacity = load64(p + 56)
    h.sync_failed = p[64] != 0
    header_seed(hardware, h)
    return 0


cdef int header_read(bint hardware, const uint8_t* p, Header* h) noexcept nogil:
    cdef Header other
    cdef int first = header_copy_read(hardware, p, h)
    if header_copy_read(hardware, p + HEADER_COPY, &other) != 0:
        return first
    if first != 0 or other.number > h.number or (other.number == h.number and other.tail_lsn > h.tail_lsn):
        h[0] = other
    return 0
