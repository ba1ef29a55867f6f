# The functions that Redis runs for the files of a store, as texts in Lua. Each call is atomic, also on a replica.
#
# Keys of the store NAME, in one slot:
#
#     mosq:{NAME}:head     hash: token, owner, owner before, number of the last operation, connections; key of a content
#                          -> its length; sized: token and number of the operation after which these are the lengths
#     mosq:{NAME}:names    hash: name of a file -> number of its content
#     mosq:{NAME}:gone     hash: key of a content without a name that a descriptor still reads
#     mosq:{NAME}:f:N      content N, a string; an empty content has no key

# KEYS: head, names, gone; ARGV: token (0 = the next), number that the head must have (-1 = any), whether to create the store,
# owner, beginning of a content's key, owner before. Takes the store for an owner, or confirms that the owner has it. An owner that
# knows the number takes it a second time only from the owner before: a failover has lost the first claim. Always writes, since
# WAIT counts only writes of its own connection. Returns token, number, the owner before, and of each file its name, content and
# size.
cdef const char* script_claim() noexcept nogil
# KEYS: head, names, gone, content; ARGV: token, number, kind and three values: see the text. Does the operation if it is the next
# one. Returns the number of the last operation.
cdef const char* script_apply() noexcept nogil
# KEYS: head, content; ARGV: token, first byte, last byte. Returns these bytes, fewer at the end of the content.
cdef const char* script_read() noexcept nogil
# KEYS: head, content; ARGV: token, then first and last byte of each range. Returns the bytes of the ranges, as script_read.
cdef const char* script_read_many() noexcept nogil
