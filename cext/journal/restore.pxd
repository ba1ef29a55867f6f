# What a start finds behind the mark, and brings to the disk. The writer's; for journal_open.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.journal cimport Journal, JournalFound
from cext.journal.listing cimport Listing

cdef int refuse(char* why, const char* what, const char* path, int error) noexcept nogil       # -1; `why` says it, with what to do
# Of a shard whose rows are there, from all files of `l`: what is behind the mark is to be written, its numbers go on behind it. 0; -1: `why`
cdef int shard_restore(Journal* j, uint32_t shard, const Listing* l, uint64_t now_us, JournalFound* found, char* why) noexcept nogil
# Written, synced, marked, and the files that are over removed; on a full disk it waits in memory. 0; -1: `why`
cdef int restore_end(Journal* j, const Listing* l, uint64_t now_us, char* why) noexcept nogil
