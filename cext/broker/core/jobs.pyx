"""Hold the list of jobs: long work in slices, which share one budget per turn. This module knows which client waits for a job. The work of a slice
belongs to other rooms (route, retain, session_lifecycle, kick); broker_loop.pyx calls them."""

from libc.stdlib cimport calloc, free

from cext.base.slab cimport slab_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport JOB_FANOUT, Job
from cext.broker.core.session_refs cimport session_replay
from cext.net.conn cimport conn_resume
from cext.net.conn_state cimport CONN_PAUSED
from cext.session.message cimport message_unref
from cext.session.session cimport Session


cdef Job* job_new(Broker* b, int kind, Client* owner) noexcept nogil:
    cdef Job* j = <Job*>calloc(1, sizeof(Job))
    if j == NULL:
        return NULL
    j.kind = <unsigned char>kind
    if owner != NULL:
        job_own(j, owner)
    return j


cdef void job_own(Job* j, Client* owner) noexcept nogil:
    j.owner_index = owner.slab.index
    j.owner_generation = owner.slab.generation


cdef Client* job_owner(Broker* b, Job* j) noexcept nogil:
    cdef Client* c
    if j.owner_generation == 0:
        return NULL
    c = <Client*>slab_at(&b.clients, j.owner_index)
    return c if c != NULL and c.slab.generation == j.owner_generation else NULL


cdef void job_add(Broker* b, Job* j) noexcept nogil:
    cdef Client* c = job_owner(b, j)
    if c != NULL:
        c.jobs += 1
        c.conn.flags |= CONN_PAUSED
    job_append(b, j)


cdef void job_append(Broker* b, Job* j) noexcept nogil:
    j.next = NULL
    b.jobs_rest = 0
    if b.jobs_tail != NULL:
        b.jobs_tail.next = j
    else:
        b.jobs = j
    b.jobs_tail = j


cdef void jobs_follow(Broker* b, Client* c) noexcept nogil:
    cdef Job* j = b.jobs
    cdef Client* before
    while j != NULL:
        if j.kind == JOB_FANOUT and j.session == c.session and j.owner_generation:
            before = job_owner(b, j)
            if before != NULL:
                before.jobs -= 1
            j.owner_index = c.slab.index
            j.owner_generation = c.slab.generation
            c.jobs += 1
            c.conn.flags |= CONN_PAUSED
        j = j.next


cdef void job_free(Broker* b, Job* j) noexcept nogil:
    cdef Client* c = job_owner(b, j)
    if c != NULL:
        c.jobs -= 1
        if c.jobs == 0 and c.conn.flags & CONN_PAUSED:
            conn_resume(&b.reactor, &c.conn)
    if j.message != NULL:
        message_unref(&b.messages, &b.reactor.buffers, j.message)
    if j.session != NULL:
        j.session.jobs -= 1
    free(j)


cdef void jobs_unblock(Broker* b, Session* s) noexcept nogil:
    cdef Job* j = session_replay(s)
    if j != NULL and j.blocked:
        j.blocked = 0
        job_add(b, j)
    if b.streams != NULL:
        b.replay.unblock(b, s)
