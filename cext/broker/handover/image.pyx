"""Write and read the memory file of a handover. This module knows files, lengths and checksums, but not the meaning of an item.

    header (32 bytes): magic, format, size of the file, CRC-32C of everything behind the header
    item             : length of the body (4 bytes), kind (1), zeros (3), body, zeros up to a multiple of 8

Both processes run on the same machine with the same layout of structs: IMAGE_FORMAT counts every change of a struct of image.pxd, and of
what a struct of another room contains (Address), and of WsDecoder, whose bytes move too. The reader trusts nothing: it accepts a file only if it is sealed, so that it cannot
change under the reader, and checks the length of each item before it looks at one. Cost: one copy of the state, and its checksum.
"""

from libc.errno cimport EFBIG, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset

from cext.base.view cimport View
from cext.base.words cimport load32, load64, store64
from cext.store.crc cimport crc_bytes, crc_hardware

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>
    """
    int memfd_create(const char* name, unsigned int flags)
    int MFD_CLOEXEC, MFD_ALLOW_SEALING
    int fcntl_int "fcntl"(int fd, int command, ...)
    int F_ADD_SEALS, F_GET_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
    int ftruncate(int fd, int64_t n)
    int64_t lseek(int fd, int64_t offset, int whence)
    int SEEK_END
    void* mmap(void* p, size_t n, int protection, int flags, int fd, long offset)
    void* mremap(void* p, size_t n, size_t new_n, int flags, ...)
    int munmap(void* p, size_t n)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MREMAP_MAYMOVE
    void* MAP_FAILED

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef enum:
    IMAGE_HEADER_BYTES = 32
    ITEM_HEADER_BYTES = 8
    IMAGE_FIRST_BYTES = 1 << 20
    ITEM_BYTES_MAX = 0x7FFFFFFF


cdef inline const char* image_magic() noexcept nogil:
    return b"mosqmove"


# ---------------------------------------------------------------- writing

cdef int image_grow(ImageWriter* w, uint64_t room) noexcept nogil:
    cdef void* p
    if room > <uint64_t>1 << 40:
        return EFBIG
    if ftruncate(w.fd, <int64_t>room) != 0:
        return errno
    if w.p == NULL:
        p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, w.fd, 0)
    else:
        p = mremap(w.p, w.room, room, MREMAP_MAYMOVE)
    if p == MAP_FAILED:
        return errno
    w.p = <uint8_t*>p
    w.room = room
    return 0


cdef int image_begin(ImageWriter* w) noexcept nogil:
    memset(w, 0, sizeof(ImageWriter))
    w.fd = memfd_create("mosq-handover", MFD_CLOEXEC | MFD_ALLOW_SEALING)
    if w.fd < 0:
        w.error = errno
        return w.error
    w.error = image_grow(w, IMAGE_FIRST_BYTES)
    w.n = IMAGE_HEADER_BYTES
    return w.error


cdef uint8_t* image_item(ImageWriter* w, int kind, uint64_t n) noexcept nogil:
    cdef uint64_t need = w.n + ITEM_HEADER_BYTES + ((n + 7) & ~<uint64_t>7)
    cdef uint64_t room = w.room
    cdef uint8_t* out
    if n > ITEM_BYTES_MAX:
        w.error = EFBIG
    while not w.error and room < need:
        room *= 2
    if not w.error and room != w.room:
        w.error = image_grow(w, room)
    if w.error:
        return NULL
    out = w.p + w.n
    store64(out, n | <uint64_t>kind << 32)
    w.n = need
    return out + ITEM_HEADER_BYTES           # the file's new pages are zero, and so is the padding


cdef int image_end(ImageWriter* w) noexcept nogil:
    cdef int fd = w.fd
    if w.p != NULL:
        if not w.error:
            memcpy(w.p, image_magic(), 8)
            store64(w.p + 8, IMAGE_FORMAT)
            store64(w.p + 16, w.n)
            store64(w.p + 24, crc_bytes(crc_hardware(), 0, w.p + IMAGE_HEADER_BYTES, w.n - IMAGE_HEADER_BYTES))
        munmap(w.p, w.room)
        w.p = NULL
    if not w.error and (ftruncate(fd, <int64_t>w.n) != 0 or
                        fcntl_int(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0):
        w.error = errno
    if w.error and fd >= 0:
        c_close(fd)
        fd = -1
    w.fd = -1
    return fd


# ---------------------------------------------------------------- reading

cdef int image_refuse(ImageReader* r, const char* why) noexcept nogil:
    snprintf(r.why, r.why_n, "the handed-over state is damaged: %s", why)
    image_close(r)
    return -1


cdef int image_open(ImageReader* r, int fd, char* why, uint32_t why_n) noexcept nogil:
    cdef int seals = fcntl_int(fd, F_GET_SEALS)
    cdef int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE
    cdef int64_t n = lseek(fd, 0, SEEK_END)
    cdef void* p
    cdef View _
    memset(r, 0, sizeof(ImageReader))
    r.fd = -1
    r.why = why
    r.why_n = why_n
    if seals < 0 or (seals & wanted) != wanted:
        return image_refuse(r, "the file is not sealed")
    if n < IMAGE_HEADER_BYTES:
        return image_refuse(r, "the file is too short")
    p = mmap(NULL, <size_t>n, PROT_READ, MAP_SHARED, fd, 0)
    if p == MAP_FAILED:
        return image_refuse(r, "it cannot be mapped")
    r.p = <uint8_t*>p
    r.n = <uint64_t>n
    if memcmp(r.p, image_magic(), 8) != 0:
        return image_refuse(r, "it does not begin with its magic bytes")
    if load64(r.p + 8) != IMAGE_FORMAT:
        snprintf(why, why_n, "the handed-over state has format %llu, this version reads format %d",
                 <unsigned long long>load64(r.p + 8), <int>IMAGE_FORMAT)
        image_close(r)
        return -1
    if load64(r.p + 16) != r.n:
        return image_refuse(r, "its size is not that of its header")
    if load64(r.p + 24) != crc_bytes(crc_hardware(), 0, r.p + IMAGE_HEADER_BYTES, r.n - IMAGE_HEADER_BYTES):
        return image_refuse(r, "the checksum is wrong")
    r.at = IMAGE_HEADER_BYTES
    while r.at < r.n:
        if image_next(r, &_) == 0:
            return image_refuse(r, "an item ends behind the end of the file")
    r.at = IMAGE_HEADER_BYTES
    return 0


cdef int image_next(ImageReader* r, View* body) noexcept nogil:
    cdef uint64_t n
    cdef int kind
    if r.n - r.at < ITEM_HEADER_BYTES:
        return 0
    n = load32(r.p + r.at)
    kind = r.p[r.at + 4]
    if n > ITEM_BYTES_MAX or r.n - r.at - ITEM_HEADER_BYTES < ((n + 7) & ~<uint64_t>7):
        return 0
    body.p = r.p + r.at + ITEM_HEADER_BYTES
    body.n = <uint32_t>n
    r.at += ITEM_HEADER_BYTES + ((n + 7) & ~<uint64_t>7)
    return kind


cdef void image_close(ImageReader* r) noexcept nogil:
    if r.p != NULL:
        munmap(r.p, r.n)
        r.p = NULL


cdef bint image_head(View* body, void* out, size_t n) noexcept nogil:
    cdef View part
    if not image_part(body, n, &part):
        return 0
    memcpy(out, part.p, n)
    return 1


cdef bint image_part(View* body, uint64_t n, View* out) noexcept nogil:
    if n > body.n:
        return 0
    out.p = body.p
    out.n = <uint32_t>n
    body.p += n
    body.n -= <uint32_t>n
    return 1
