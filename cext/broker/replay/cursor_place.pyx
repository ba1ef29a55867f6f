"""Parse $stream/NAME/PLACE/FILTER into its levels, and the PLACE into a position. This module knows text and the number of
shards. It opens nothing. Every byte of the text comes from a client.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.broker.replay.cursor_state cimport PART_SHARDS, PLACE_FIRST, PLACE_TIME, PartPlace, ReadRequest
from cext.broker.replay.parts cimport part_shards


cdef bint level_take(View* rest, View* level) noexcept nogil:
    """Take the level up to the next slash and skip the slash. Returns 0 if there is no slash, or the level is empty or has a
    wildcard."""
    cdef uint32_t i = 0
    while i < rest.n and rest.p[i] != c'/':
        if rest.p[i] == c'+' or rest.p[i] == c'#':
            return 0
        i += 1
    if i == 0 or i == rest.n:
        return 0
    level.p = rest.p
    level.n = i
    rest.p += i + 1
    rest.n -= i + 1
    return 1


cdef bint digits_at(View v, uint32_t at, uint32_t n, uint64_t* out) noexcept nogil:
    """Read n digits at `at` into *out. Returns 0 if there are fewer."""
    cdef uint32_t i
    out[0] = 0
    if n == 0 or n > 19 or at + n > v.n:
        return 0
    for i in range(at, at + n):
        if not c'0' <= v.p[i] <= c'9':
            return 0
        out[0] = out[0] * 10 + (v.p[i] - c'0')
    return 1


cdef uint64_t days_since_1970(uint64_t year, uint64_t month, uint64_t day) noexcept nogil:
    """Return the days from 1970-01-01 in the civil calendar, for years from 1970. The computation counts years from March."""
    cdef uint64_t y = year - (1 if month <= 2 else 0)
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - 719468


cdef uint64_t days_of(uint64_t year, uint64_t month) noexcept nogil:
    return 31 if month == 12 else days_since_1970(year, month + 1, 1) - days_since_1970(year, month, 1)


cdef bint time_parse(View v, uint64_t* us) noexcept nogil:
    """Parse a time in UTC into microseconds since 1970: 2026-11-22, 2026-11-22T10:00, 2026-11-22T10:00:00 or
    2026-11-22T10:00:00.123456, with an optional Z. Returns 0 if the text is no time."""
    cdef uint64_t year, month, day, hour = 0, minute = 0, second = 0, part = 0
    cdef uint32_t n
    if v.n and v.p[v.n - 1] == c'Z':
        v.n -= 1
    if not (digits_at(v, 0, 4, &year) and digits_at(v, 5, 2, &month) and digits_at(v, 8, 2, &day) and v.p[4] == c'-'
            and v.p[7] == c'-'):
        return 0
    if v.n > 10 and not (digits_at(v, 11, 2, &hour) and digits_at(v, 14, 2, &minute) and v.p[10] == c'T' and v.p[13] == c':'):
        return 0
    if v.n > 16 and not (digits_at(v, 17, 2, &second) and v.p[16] == c':'):
        return 0
    if v.n > 19:
        n = v.n - 20
        if n > 6 or v.p[19] != c'.' or not digits_at(v, 20, n, &part):
            return 0
        while n < 6:
            part *= 10
            n += 1
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= days_of(year, month) or hour > 23 or minute > 59 or second > 60:
        return 0
    us[0] = (((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000000 + part
    return 1


cdef uint32_t number_end(View v, uint32_t at) noexcept nogil:
    """Return where the number that begins at `at` ends: at a dot, a colon or the end of the text."""
    while at < v.n and v.p[at] != c'.' and v.p[at] != c':':
        at += 1
    return at


cdef PartPlace* part_numbered(ReadRequest* request, uint64_t number) noexcept nogil:
    cdef uint32_t i
    for i in range(request.stream.n_parts):
        if request.stream.parts[i].number == number:
            return &request.parts[i]
    return NULL


cdef bint pairs_parse(View v, ReadRequest* request) noexcept nogil:
    """Parse SHARD:NUMBER pairs with dots in between. Shards without a pair begin with the oldest record."""
    cdef uint32_t i, at = 0
    cdef uint64_t shard
    cdef PartPlace* part
    for i in range(request.stream.n_parts):
        request.parts[i].where.place = PLACE_FIRST
    while True:
        i = number_end(v, at)
        if i == v.n or v.p[i] != c':' or not digits_at(v, at, i - at, &shard):
            return 0
        part = part_numbered(request, shard // PART_SHARDS)
        at = i + 1
        i = number_end(v, at)
        shard %= PART_SHARDS
        if part == NULL or not digits_at(v, at, i - at, &part.where.seqs[shard]) or part.where.seqs[shard] >> 62:
            return 0
        part.where.found |= <uint64_t>1 << shard
        if i == v.n:
            return 1
        if v.p[i] != c'.':
            return 0
        at = i + 1


cdef bint seqs_parse(View v, ReadRequest* request) noexcept nogil:
    """Parse one number for all shards, or one number for each shard, in order, with dots in between."""
    cdef uint32_t part, shard, i = 0, at = 0
    cdef uint64_t number = 0
    cdef bint one = number_end(v, 0) == v.n
    for part in range(request.stream.n_parts):
        request.parts[part].where.found = ~<uint64_t>0
        for shard in range(PART_SHARDS if one else part_shards(request.stream, part)):
            if not one or (part == 0 and shard == 0):
                i = number_end(v, at)
                if not digits_at(v, at, i - at, &number) or number >> 62:
                    return 0
                at = i + 1
            request.parts[part].where.seqs[shard] = number
    return at == v.n + 1         # all of it was read, and there was a number for each


cdef bint place_take(View v, ReadRequest* request) noexcept nogil:
    cdef uint64_t time_us = 0
    cdef uint32_t i
    cdef bint first = v.n == 5 and memcmp(v.p, b"first", 5) == 0
    if not first and not time_parse(v, &time_us):
        i = number_end(v, 0)
        return pairs_parse(v, request) if i < v.n and v.p[i] == c':' else seqs_parse(v, request)
    for i in range(request.stream.n_parts):
        request.parts[i].where.place = PLACE_FIRST if first else PLACE_TIME
        request.parts[i].where.time_us = time_us
    return 1
