"""Compute Sec-WebSocket-Accept: SHA-1 [RFC 3174] of the key and a fixed text, in base64. This module knows bytes.

SHA-1 is part of the protocol and protects nothing here. OpenSSL has it too, but a process that loads libcrypto only for this call
holds 1.5 MB more: only listeners and bridges with TLS, and passwords, load it.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset

cdef enum:
    BLOCK = 64
    TEXT = 60                   # key and fixed text; their end and length fill two blocks


cdef inline uint32_t rotated(uint32_t x, int n) noexcept nogil:
    return x << n | x >> (32 - n)


cdef void sha1_block(uint32_t* h, const uint8_t* p) noexcept nogil:
    cdef uint32_t w[80]
    cdef uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4]
    cdef uint32_t f, k, next
    cdef int i
    for i in range(16):
        w[i] = <uint32_t>p[4 * i] << 24 | <uint32_t>p[4 * i + 1] << 16 | <uint32_t>p[4 * i + 2] << 8 | p[4 * i + 3]
    for i in range(16, 80):
        w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1)
    for i in range(80):
        if i < 20:
            f, k = b & c | ~b & d, 0x5A827999
        elif i < 40:
            f, k = b ^ c ^ d, 0x6ED9EBA1
        elif i < 60:
            f, k = b & c | b & d | c & d, 0x8F1BBCDC
        else:
            f, k = b ^ c ^ d, 0xCA62C1D6
        next = rotated(a, 5) + f + e + w[i] + k
        e, d, c, b, a = d, c, rotated(b, 30), a, next
    h[0] += a
    h[1] += b
    h[2] += c
    h[3] += d
    h[4] += e


cdef void ws_accept(uint8_t* out, const uint8_t* key) noexcept nogil:
    cdef const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef uint32_t h[5]
    cdef uint8_t text[128]
    cdef uint8_t digest[21]
    cdef uint32_t three
    cdef int i
    h[0], h[1], h[2], h[3], h[4] = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
    memset(text, 0, sizeof(text))
    memcpy(text, key, WS_KEY_SIZE)
    memcpy(text + WS_KEY_SIZE, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", TEXT - WS_KEY_SIZE)
    text[TEXT] = 0x80
    text[126] = TEXT * 8 >> 8           # the last bytes are the length in bits
    text[127] = TEXT * 8 & 255
    sha1_block(h, text)
    sha1_block(h, text + BLOCK)
    for i in range(20):
        digest[i] = <uint8_t>(h[i // 4] >> (24 - 8 * (i % 4)))
    digest[20] = 0
    for i in range(7):
        three = <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8 | digest[3 * i + 2]
        out[4 * i] = <uint8_t>letters[three >> 18]
        out[4 * i + 1] = <uint8_t>letters[three >> 12 & 63]
        out[4 * i + 2] = <uint8_t>letters[three >> 6 & 63]
        out[4 * i + 3] = <uint8_t>letters[three & 63]
    out[WS_ACCEPT_SIZE - 1] = c'='      # 20 bytes are six groups of three, and two
