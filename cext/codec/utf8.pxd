from libc.stdint cimport uint8_t, uint32_t

# Return 0 if the n bytes are a UTF-8 string that MQTT and Mosquitto accept, else RC_MALFORMED. Rejected are U+0000, surrogates,
# overlong forms and code points over U+10FFFF [v5 1.5.4-1, 1.5.4-2]; and, as in Mosquitto, control characters (U+0001..1F,
# U+007F..9F) and non-characters. The cost is linear; ASCII is checked 8 bytes at a time.
cdef int utf8_check(const uint8_t* s, uint32_t n) noexcept nogil
