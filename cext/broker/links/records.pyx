"""Store what links must know after a restart: the run of this worker, the marks of the others, and the identities of their QoS 2 messages. This module
knows the records. It does not know how a link uses them.

A mark is in the batch of the deliveries that it covers, and so is an identity: neither counts without the other.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport durable_of
from cext.broker.core.link_state cimport BrokerLinks, StoredChoice, StoredMark, links_of
from cext.broker.persist.persist cimport record
from cext.link.identities cimport foreign_find, foreign_release, own_find
from cext.link.links cimport link_identity_known
from cext.link.state cimport LinkHole
from cext.session.record cimport (
    RECORD_LINK_CHOICE, RECORD_LINK_IDENTITY, RECORD_LINK_IDENTITY_GONE, RECORD_LINK_MARK, RECORD_LINK_RUN, RECORD_NUMBERS_MAX, record_numbers_put,
    record_numbers_read,
)

cdef enum:
    MARK_NUMBERS = 4            # of a RECORD_LINK_MARK, without its holes
    RECORD_ODD = 1
    CHOICES_FIRST = 16


cdef void numbers_record(Broker* b, int kind, const uint64_t* numbers, uint32_t n) noexcept nogil:
    cdef uint8_t* out
    if b.durable == NULL or durable_of(b).loading:
        return
    out = record(b, kind, n * sizeof(uint64_t))
    if out != NULL:
        record_numbers_put(out, numbers, n)


cdef void record_run(Broker* b, uint64_t log, uint64_t run) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = log
    numbers[1] = run
    numbers_record(b, RECORD_LINK_RUN, numbers, 2)


cdef void mark_record(void* broker, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, const LinkHole* holes, uint32_t n) noexcept nogil:
    cdef uint64_t numbers[RECORD_NUMBERS_MAX]
    cdef uint32_t i
    numbers[0] = slot
    numbers[1] = log
    numbers[2] = run
    numbers[3] = number
    for i in range(n):
        numbers[MARK_NUMBERS + i] = holes[i].number
    numbers_record(<Broker*>broker, RECORD_LINK_MARK, numbers, MARK_NUMBERS + n)


cdef void record_identity(Broker* b, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil:
    cdef uint64_t numbers[4]
    numbers[0] = slot
    numbers[1] = log
    numbers[2] = identity
    numbers[3] = part
    numbers_record(b, RECORD_LINK_IDENTITY, numbers, 4)


cdef void identity_forget(void* broker, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil:
    cdef uint64_t numbers[2]
    numbers[0] = log
    numbers[1] = identity
    numbers_record(<Broker*>broker, RECORD_LINK_IDENTITY_GONE, numbers, 2)


cdef void record_choice(Broker* b, uint64_t identity, uint16_t part, uint32_t slot) noexcept nogil:
    cdef uint64_t numbers[3]
    numbers[0] = identity
    numbers[1] = part
    numbers[2] = slot
    numbers_record(b, RECORD_LINK_CHOICE, numbers, 3)


cdef int choice_stored(Broker* b, uint64_t identity, uint16_t part) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t i = l.choices_n
    while i:
        i -= 1
        if l.choices[i].identity == identity and l.choices[i].part == part:
            return <int>l.choices[i].slot
    return -1


# ---------------------------------------------------------------- recovery and cleaning

cdef int choice_apply(BrokerLinks* l, const uint64_t* numbers) noexcept nogil:
    cdef StoredChoice* grown
    if l.choices_n == l.choices_cap:
        grown = <StoredChoice*>realloc(l.choices, (2 * l.choices_cap + CHOICES_FIRST) * sizeof(StoredChoice))
        if grown == NULL:
            return -1
        l.choices, l.choices_cap = grown, 2 * l.choices_cap + CHOICES_FIRST
    l.choices[l.choices_n].identity = numbers[0]
    l.choices[l.choices_n].part = numbers[1]
    l.choices[l.choices_n].slot = numbers[2]
    l.choices_n += 1
    return 0


cdef void mark_apply(BrokerLinks* l, const uint64_t* numbers, uint32_t n) noexcept nogil:
    cdef StoredMark* m = &l.stored[numbers[0]]
    m.log = numbers[1]
    m.run = numbers[2]
    m.number = numbers[3]
    m.n = n - MARK_NUMBERS
    memcpy(m.holes, &numbers[MARK_NUMBERS], m.n * sizeof(uint64_t))


cdef int link_record_apply(Broker* b, int kind, View body) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint64_t numbers[RECORD_NUMBERS_MAX]
    cdef int n = record_numbers_read(<unsigned char>kind, body, numbers)
    if n < 0:
        return RECORD_ODD
    if l == NULL:
        return 0
    if kind == RECORD_LINK_RUN:
        l.stored_log = numbers[0]
        l.stored_run = numbers[1]
    elif kind == RECORD_LINK_IDENTITY_GONE:
        foreign_release(&l.links, numbers[0], numbers[1])
    elif kind == RECORD_LINK_CHOICE:
        return choice_apply(l, numbers) if numbers[2] < l.n else 0
    elif numbers[0] >= l.n or numbers[0] == l.links.self:
        return 0                 # from a time with more workers
    elif kind == RECORD_LINK_MARK:
        mark_apply(l, numbers, <uint32_t>n)
    elif foreign_find(&l.links, numbers[1], numbers[2], <uint16_t>numbers[3]) == NULL:
        return link_identity_known(&l.links, <uint32_t>numbers[0], numbers[1], numbers[2], <uint16_t>numbers[3])
    return 0


cdef void link_record_copy(Broker* b, int kind, View body) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint64_t numbers[RECORD_NUMBERS_MAX]
    if l == NULL or record_numbers_read(<unsigned char>kind, body, numbers) < 0:
        return
    if kind == RECORD_LINK_RUN and numbers[0] == l.links.log and numbers[1] == l.links.run:
        record_run(b, l.links.log, l.links.run)
    elif kind == RECORD_LINK_CHOICE and own_find(&l.links, numbers[0]) != NULL:
        record_choice(b, numbers[0], <uint16_t>numbers[1], <uint32_t>numbers[2])
    elif kind == RECORD_LINK_MARK and numbers[0] < l.n:
        l.links.peers[numbers[0]].inward.dirty = l.links.peers[numbers[0]].inward.log != 0      # the open batch gets the present mark
    elif kind == RECORD_LINK_IDENTITY and foreign_find(&l.links, numbers[1], numbers[2], <uint16_t>numbers[3]) != NULL:
        record_identity(b, <uint32_t>numbers[0], numbers[1], numbers[2], <uint16_t>numbers[3])
