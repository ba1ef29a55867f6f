from libc.stdint cimport uint8_t, uint32_t

# 0 when the n bytes are a UTF-8 string that MQTT and Mosquitto accept, else RC_MALFORMED: no U+0000, no
# surrogates, no overlong forms, nothing over U+10FFFF [v5 1.5.4-1, 1.5.4-2]; and, as Mosquitto does, no control
# characters (U+0001..1F, U+007F..9F) and no non-characters. Linear; ASCII is checked 8 bytes at a time.
cdef int utf8_check(const uint8_t* s, uint32_t n) noexcept nogil
