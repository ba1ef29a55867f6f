"""Open streams, before the loop, after the store was opened and read. This module knows the control plane's description of streams, and errors."""

import os

from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset, strcmp

from cext.base.pybytes cimport view_of
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport STREAMS_MAX, STREAM_FILTERS_MAX, STREAM_NAME_MAX, Stream, streams_of
from cext.broker.replay.parts cimport part_add
from cext.broker.storage.stream_files cimport STREAM_WHY_MAX, stream_filter, stream_open, streams_begin, streams_open_done
from cext.journal.format cimport JOURNAL_SHARDS_MAX
from cext.journal.journal cimport JOURNAL_RANGES_REPORTED, JournalFound, JournalOptions

cdef enum:
    SEGMENTS = 8                # segments of a stream with a bound on size or age, because retention removes whole segments

LOSSES = {1: "damaged", 2: "missing", 3: "retired"}


cdef int journal_options_read(JournalOptions* o, dict spec) except -1:
    cdef bytes given
    memset(o, 0, sizeof(JournalOptions))
    o.create = 1
    o.shards = spec.get("shards") or 1
    if o.shards > JOURNAL_SHARDS_MAX:
        raise ValueError(f"a stream has at most {JOURNAL_SHARDS_MAX} shards")
    o.retain_age_us = spec.get("retain_age_us") or 0
    o.retain_bytes = spec.get("retain_bytes") or 0
    o.waiting_max_bytes = spec.get("waiting_max_bytes") or 0
    given = bytes.fromhex(spec.get("id") or "")
    if len(given) == 16:
        memcpy(o.stream_id, <const char*>given, 16)
    o.roll_age_us = o.retain_age_us // SEGMENTS
    o.segment_bytes = spec.get("segment_bytes") or (min(o.retain_bytes // SEGMENTS, 64 << 20) if o.retain_bytes else 0)
    return 0


cdef dict stream_found(str name, const JournalFound* f, uint32_t shards):
    cdef uint32_t i
    n = min(f.loss.n, <uint32_t>JOURNAL_RANGES_REPORTED)
    lost = [(f.loss.ranges[i].shard, f.loss.ranges[i].lo, f.loss.ranges[i].hi, LOSSES.get(f.loss.ranges[i].why, "unknown")) for i in range(n)]
    return {"name": name, "shards": shards, "lost": lost, "lost_records": f.loss.records, "beyond": f.beyond, "torn_bytes": f.torn_bytes,
            "unreadable": f.unreadable, "mark_lost": bool(f.mark_lost)}


cdef Stream* stream_in(Broker* b, const char* dir):
    """Return the stream of this process whose journal is in this folder; NULL: there is none."""
    cdef uint32_t i
    for i in range(streams_of(b).n):
        if strcmp(streams_of(b).at[i].journal.dir, dir) == 0:
            return streams_of(b).at[i]
    return NULL


cdef int parts_read(Broker* b, Stream* s, str name, list parts) except -1:
    """Add the parts of a stream, each a tuple: number; folder; the place of its worker, None: no process writes it."""
    cdef bytes folder, named
    for number, path, place in parts:
        folder = os.fsencode(path)
        named = (name if number == place + 1 else f"{name}.{number}").encode() if place is not None else b""
        if part_add(b, s, number, stream_in(b, folder), folder, place or 0, named) != 0:
            raise MemoryError
    return 0


cdef list streams_open(Broker* b, list specs):
    """Open streams and return what was found, one entry per stream. Each spec is a dict: name, filters, options of the journal; events: it is the
    stream of events; folder: that of its journal, if it is not in the store's; id: that of the
    stream, if its journal begins now; parts: see parts_read ([]: clients cannot subscribe to the stream), none: one; left: it is a part without a
    writer. Raise OSError with a text for users."""
    cdef char why[STREAM_WHY_MAX]
    cdef JournalOptions options
    cdef JournalFound found
    cdef Stream* s
    cdef const char* name
    cdef const char* folder
    cdef bytes place
    cdef bint events
    cdef int rc
    if len(specs) > STREAMS_MAX + 1:
        raise ValueError(f"at most {STREAMS_MAX} streams")
    why[0] = 0
    with nogil:
        rc = streams_begin(b, why)
    if rc != 0:
        raise OSError((<bytes>why).decode("utf-8", "replace"))
    out = []
    for spec in specs:
        raw = spec["name"].encode()
        filters = [f.encode() for f in spec.get("filters") or ()]
        if not raw or len(raw) > STREAM_NAME_MAX or b"/" in raw or len(filters) > STREAM_FILTERS_MAX:
            raise ValueError(f"{spec['name']!r} is no name of a stream, or it has too many filters")
        name = raw
        place = os.fsencode(spec.get("folder") or "")
        folder = place
        if not place:
            folder = NULL
        journal_options_read(&options, spec)
        events = bool(spec.get("events"))
        with nogil:
            s = stream_open(b, name, folder, &options, events, &found, why)
        if s == NULL:
            raise OSError((<bytes>why).decode("utf-8", "replace"))
        if spec.get("shards") and s.journal.n_shards > spec["shards"]:
            raise OSError(f"The stream {spec['name']} in {s.journal.dir.decode('utf-8', 'replace')} has {s.journal.n_shards} shards; "
                          f"their number can only grow: write shards {s.journal.n_shards}, or use another name")
        for f in filters:
            if stream_filter(b, s, view_of(f)) != 0:
                raise ValueError(f"{f!r} is no filter for a stream")
        out.append(stream_found(spec["name"], &found, s.journal.n_shards))
    for i, spec in enumerate(specs):
        if "parts" in spec:
            parts_read(b, streams_of(b).at[i], spec["name"], spec["parts"])
        elif not spec.get("events") and not spec.get("left") and part_add(b, streams_of(b).at[i], 0, streams_of(b).at[i], b"", 0, b"") != 0:
            raise MemoryError
    streams_open_done(b)
    return out
