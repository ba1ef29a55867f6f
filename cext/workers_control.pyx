"""Make a broker one of several workers: from the descriptors of the parent to the struct. This module knows their number and order. It does not know
how a connection is passed on."""

import os

from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from cext.base.hash cimport HashKey, hash_bytes
from cext.broker.loop.links_life cimport links_new
from cext.broker.core.broker cimport Broker
from cext.broker.core.workers cimport WORKERS_MAX, WORKER_LISTENERS_MAX, WorkerCounts, Workers
from cext.broker.lifecycle.passing cimport workers_free

cdef extern from "<sys/mman.h>":
    void* mmap(void* p, size_t n, int protection, int flags, int fd, long offset)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED


def counts_bytes():
    """Return (bytes of the memory for counts, bytes of the part of each worker in it)."""
    return WORKERS_MAX * sizeof(WorkerCounts), sizeof(WorkerCounts)


def worker_of(bytes key, uint32_t n, bytes client_id):
    """Return the place, from 0, of the worker to which a client id belongs; worker_of_id of cext/broker/core/workers.pxd."""
    cdef HashKey k
    if len(key) != sizeof(HashKey):
        raise ValueError("a key has 16 bytes")
    memcpy(&k, <const char*>key, sizeof(HashKey))
    return hash_bytes(&k, <const uint8_t*><const char*>client_id, len(client_id)) % n


def workers_new(size_t broker, int place, bytes key, list passages, int counts_fd):
    """See Engine.join. Raise ValueError and OSError."""
    cdef Broker* b = <Broker*>broker
    cdef Workers* w
    cdef int i
    if not 0 <= place < len(passages) <= WORKERS_MAX or len(key) != sizeof(HashKey) or b.workers != NULL:
        raise ValueError(f"not a worker: place {place} of {len(passages)}")
    if b.n_listeners > WORKER_LISTENERS_MAX:
        raise ValueError(f"workers can have {WORKER_LISTENERS_MAX} listeners, these are {b.n_listeners}")
    w = <Workers*>calloc(1, sizeof(Workers))
    if w == NULL:
        raise MemoryError
    b.workers = w
    w.place = place
    w.n = <uint32_t>len(passages)
    memcpy(&w.key, <const char*>key, sizeof(HashKey))
    for i in range(WORKERS_MAX):
        w.passages[i].fd = -1
    try:
        w.counts = <WorkerCounts*>mmap(NULL, WORKERS_MAX * sizeof(WorkerCounts), PROT_READ | PROT_WRITE, MAP_SHARED, counts_fd, 0)
        if w.counts == <WorkerCounts*>MAP_FAILED:
            w.counts = NULL
            raise OSError(errno, os.strerror(errno))
        for i, fd in enumerate(passages):
            w.passages[i].fd = os.dup(fd)
        if links_new(b, w.place, w.n, &w.key) != 0:
            raise MemoryError
    except BaseException:
        workers_free(b)
        raise
