"""The storage thread's side of a stream: write blocks to segments, sync, write marks. The caller decides when a step is due.

Invariants: the blocks of a shard are written in order. The mark names only records that a sync has confirmed, and only rises. It
does not pass the beginning of an abandoned segment until all of its records are on the disk, so that a start, which reads behind
the mark, finds them. A slot of the mark is written only while the other one is on the disk. A process writes the mark of another
process again before it depends on it: if the sync of that mark failed, another sync would report success. After a failure the data
stays in memory and the next call tries again; shards do not wait for each other.
"""

from libc.errno cimport EDQUOT, ENOSPC
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from cext.journal.format cimport Marks, ShardMark, mark_bytes, mark_write
from cext.journal.journal cimport (
    Block, JOURNAL_UNSYNCED_MAX_BYTES, JOURNAL_WHY_MAX, JournalWriter, Shard, blocks_add, blocks_join, blocks_pop,
)
from cext.journal.listing cimport mark_new_path, mark_path
from cext.journal.segment cimport block_write, segment_flush, segment_poison, segment_settle
from cext.store.file cimport file_error_passes, file_error_text, file_write

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_NOFOLLOW


cdef int journal_step_failed(Journal* j, int error, const char* action) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef char text[256]
    w.stats.errors += 1
    w.stats.full = error == -ENOSPC or error == -EDQUOT
    w.stats.failing = not w.stats.full
    file_error_text(&j.files, error, text, sizeof(text))
    snprintf(w.why, JOURNAL_WHY_MAX, "Cannot %s %s: %s", action, j.dir, <const char*>text)
    return -1


cdef void journal_step_succeeded(Journal* j) noexcept nogil:
    j.writer.stats.full = j.writer.stats.failing = 0
    j.writer.why[0] = 0


cdef void journal_take(Journal* j) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    blocks_join(&w.incoming, &j.shared.sealed)
    if j.shared.done == NULL:
        j.shared.done = w.done
        w.done = NULL
    j.shared.marks = w.marks
    j.shared.stats = w.stats
    memcpy(j.shared.why, w.why, JOURNAL_WHY_MAX)


# ---- blocks

cdef int shard_write(Journal* j, uint32_t shard, uint64_t now_us) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef Shard* s = &w.shards[shard]
    cdef const char* action = ""
    cdef Block* b = s.todo.head
    cdef int got
    while b != NULL:
        got = block_write(j, shard, b, now_us, &action)
        if got < 0:
            return journal_step_failed(j, got, action)
        blocks_pop(&s.todo)
        blocks_add(&s.unsynced, b)
        w.unsynced_bytes += b.cap
        w.stats.records += b.count
        w.stats.bytes += b.n
        w.stats.blocks += 1
        if w.unsynced_bytes > JOURNAL_UNSYNCED_MAX_BYTES and journal_sync(j) < 0:
            return -1
        b = s.todo.head
    return 0


cdef int incoming_write(Journal* j, uint64_t now_us) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef uint32_t shard, errors = w.stats.errors
    cdef bint wrote = 0
    for shard in range(j.n_shards):
        if w.shards[shard].todo.head != NULL:
            wrote = 1
            shard_write(j, shard, now_us)
    if w.stats.errors != errors:
        return -1
    if wrote:
        journal_step_succeeded(j)
    return 0


cdef int journal_write(Journal* j, uint64_t now_us) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef Block* b
    if w.restoring and journal_restored(j, now_us) < 0:
        return -1
    b = blocks_pop(&w.incoming)
    while b != NULL:
        blocks_add(&w.shards[b.shard].todo, b)
        b = blocks_pop(&w.incoming)
    return incoming_write(j, now_us)


# ---- syncs

cdef inline bint is_dirty(const Shard* s) noexcept nogil:
    return s.fd >= 0 and s.written > s.synced.seq


cdef int journal_sync(Journal* j) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef Shard* s
    cdef uint32_t shard
    cdef bint names = 0
    cdef int got, outcome = 0
    for shard in range(j.n_shards):
        s = &w.shards[shard]
        if is_dirty(s):
            got = segment_flush(j, shard)
            if got < 0:
                outcome = journal_step_failed(j, got, b"sync a segment in")
            elif not s.named:
                names = 1
    got = j.files.sync_dir(j.files.ctx, j.dir) if names else 0
    if got < 0:
        outcome = journal_step_failed(j, got, b"sync the folder")
    if outcome < 0 and file_error_passes(&j.files):
        return outcome
    for shard in range(j.n_shards):
        s = &w.shards[shard]
        if is_dirty(s):                 # a shard whose sync failed has no file any more
            if got < 0 and not s.named:
                segment_poison(j, shard)
            else:
                segment_settle(j, shard)
    return outcome


# ---- the mark

cdef int mark_slot_open(Journal* j) noexcept nogil:
    """Open the file of the slot; create it again if it was abandoned."""
    cdef JournalWriter* w = &j.writer
    cdef char path[4096]
    cdef int got
    if w.mark_fd[w.mark_slot] >= 0:
        return 0
    mark_path(path, j.dir, w.mark_slot)
    j.files.unlink(j.files.ctx, path)
    got = j.files.open(j.files.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)
    if got < 0:
        return got
    w.mark_fd[w.mark_slot] = got
    w.dir_dirty = 1
    return 0


cdef int mark_slot_write(Journal* j, const Marks* m) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef int got = mark_slot_open(j)
    if got == 0:
        got = mark_file_write(j, w.mark_fd[w.mark_slot], m)
    if got == 0 and w.dir_dirty:
        got = j.files.sync_dir(j.files.ctx, j.dir)
        w.dir_dirty = got < 0
    return got


cdef int mark_file_write(Journal* j, int fd, const Marks* m) noexcept nogil:
    cdef uint8_t page[3124]     # size = MARK_BYTES_MAX
    cdef int got
    mark_write(j.hardware, page, m)
    got = file_write(&j.files, fd, page, mark_bytes(m.n), 0)
    return got if got < 0 else j.files.datasync(j.files.ctx, fd)


cdef int mark_inherited_replace(Journal* j, const Marks* m) noexcept nogil:
    """Replace the newest mark, which another process wrote, by a new file. Both files of that process stay until the new one is on
    the disk: the newest counts if the disk has it, and the other one if not."""
    cdef JournalWriter* w = &j.writer
    cdef int slot = w.mark_slot ^ 1
    cdef char path[4096]
    cdef char target[4096]
    cdef int got, fd
    mark_new_path(path, j.dir)
    mark_path(target, j.dir, slot)
    j.files.unlink(j.files.ctx, path)
    fd = j.files.open(j.files.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)
    if fd < 0:
        return fd
    got = mark_file_write(j, fd, m)
    if got == 0:
        got = j.files.rename(j.files.ctx, path, target)
    if got == 0:
        got = j.files.sync_dir(j.files.ctx, j.dir)
    else:
        j.files.unlink(j.files.ctx, path)
    if got < 0:
        j.files.close(j.files.ctx, fd)
        return got
    if w.mark_fd[slot] >= 0:
        j.files.close(j.files.ctx, w.mark_fd[slot])
    w.mark_fd[slot] = fd
    return 0


cdef void mark_slot_abandon(Journal* j) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef char path[4096]
    if w.mark_fd[w.mark_slot] < 0:
        return
    j.files.close(j.files.ctx, w.mark_fd[w.mark_slot])
    w.mark_fd[w.mark_slot] = -1
    mark_path(path, j.dir, w.mark_slot)
    j.files.unlink(j.files.ctx, path)


cdef int mark_put(Journal* j, const Marks* m) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef int got
    if w.mark_inherited:
        got = mark_inherited_replace(j, m)
        if got != -ENOSPC and got != -EDQUOT:
            return got
        # a full disk has no room for a new file, and retention, which makes room, needs a mark
    got = mark_slot_write(j, m)
    if got < 0:
        mark_slot_abandon(j)
    else:
        w.mark_slot ^= 1
    return got


cdef void shard_mark(const Shard* s, ShardMark* m) noexcept nogil:
    cdef uint64_t first_seq = s.synced.first_seq
    if s.synced.seq >= s.reached:
        m[0] = s.synced
    m.first_seq = first_seq


cdef int journal_mark(Journal* j, uint64_t now_us) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef Marks m = w.marks
    cdef uint32_t shard
    cdef int got
    m.n = j.n_shards
    for shard in range(j.n_shards):
        shard_mark(&w.shards[shard], &m.shards[shard])
    if m.n == w.marks.n and w.marks.generation and not w.mark_inherited and memcmp(m.shards, w.marks.shards, m.n * sizeof(ShardMark)) == 0:
        return 0
    m.generation += 1
    m.made_us = now_us
    got = mark_put(j, &m)
    if got < 0:
        return journal_step_failed(j, got, b"write the mark in")
    w.marks = m
    w.mark_inherited = 0
    w.stats.marks += 1
    return 0


cdef int journal_restored(Journal* j, uint64_t now_us) noexcept nogil:
    cdef JournalWriter* w = &j.writer
    cdef Shard* s
    cdef uint32_t shard
    cdef int got = incoming_write(j, now_us)
    if journal_sync(j) < 0 or got < 0:
        return -1
    # older files hold no valid record behind the mark; records that were not found are lost
    for shard in range(j.n_shards):
        s = &w.shards[shard]
        s.synced.behind = max(s.synced.behind, w.start_number)
        s.written = s.synced.seq = max(s.synced.seq, s.reached)
    if journal_mark(j, now_us) < 0:
        return -1
    w.restoring = 0
    return 0
