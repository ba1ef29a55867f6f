# The links of one worker to all others: a state machine without I/O, clock and broker. Events go in by the functions below, actions
# come out by the table LinkOps (state.pxd). docs/adr/0023 has the protocol, and why each rule is there.
#
#   A (this worker)                                   B (another worker, `slot`)
#   route_count, route_online ------ ROUTE -------->  ops.route, ops.unroute, ops.routes_end
#   link_wait_routes --------------- ASK ---------->
#     waiter  <--------------------- CONFIRM -------
#   link_send ---------------------- MESSAGE ------>  ops.message -> the batch with its record
#                                                     link_seal -> ops.mark;  link_committed
#     waiter  <--------------------- ACK -----------
#   link_send0 --------------------- MESSAGE0 ----->  ops.message
#     ops.again <------------------- NO_MEMBER -----  ops.message answers LINK_NO_MEMBER
#   link_retained ------------------ RETAINED ----->  ops.retained
#
# The broker's duties, in the order of a worker's life:
#
# Start. Raise the run in the store and commit it, before links_init. Restore what the store has: link_restore (a mark of each other
#   log), link_restore_hole, link_identity_known (identities that came from others), link_identity_restore (open ones of this log), and
#   route_count for each subscription. Then link_start; connect to each other worker. No client is served and no will is sent before
#   ops.ready.
# Connections. Connect to a worker's link socket -> link_connected. Accept -> read until link_accept returns other than 0. Bytes ->
#   link_read. End of a connection -> link_broken; then connect again, after a pause. Room in the output -> link_drained. Each turn
#   of the loop -> link_turn once, and again in the next turn while it returns 1. A process that ended (the parent knows it) ->
#   link_down. It must be ended: a worker that lives, and counts as confirmed, loses messages.
# A PUBLISH. Match it; the entries of other logs say to which it goes. If link_full is true for one of them: the rules of a full disk,
#   before anything is done. QoS 0, and others if the route's QoS is 0 -> link_send0. Otherwise w = link_waiter_new(context);
#   link_send for each log, once, however many filters match there; link_wait_commit for the own batch; link_waiter_close(w).
#   ops.released -> PUBACK or PUBCOMP. A client that goes away -> link_waiter_cancel.
# QoS 2. Take an identity (link_identity_new) when the inbox record is written. The record ends when the waiter of all logs is released,
#   because a PUBREL that comes again after a crash must find it; PUBCOMP waits for the commit of that end, then link_identity_end.
#   Local deliveries are recorded with the identity in their batch, so that they are not made twice.
# Retained. A message with RETAIN goes to link_owner(topic) with LINK_OWNER (and LINK_PLAIN if that log has a route), always by
#   link_send. One of QoS 0 goes to the subscribers of that log by link_send0, and to the owner by link_send without LINK_PLAIN. Only the owner sets and stores it; if the owner is this worker: after it is in the open batch, link_retained. The others
#   have copies in memory, by ops.retained; a start gets them again.
# SUBSCRIBE. Add it to the index and the store; route_count. If it returned 1, or the subscription wants retained messages:
#   link_wait_routes(w, wants retained). When that is released, and it wants retained messages: link_wait_current with a new waiter;
#   then read the tree, and commit; then SUBACK.
#   After route_timeout: link_waiter_cancel, and 0x97 (3.x: 0x80).
# Shared groups. link_choose by the weights (members online) of the logs' routes. A QoS 2 message: record the choice (part 1, 2, ... for each
#   group) with the inbox record, and give link_send that batch: it is sent after the commit.
# Commits. Before the open batch is sealed -> link_seal(its number). After a commit -> link_committed.
#
# Lifetimes: views in a LinkFrame are valid during the call. Functions may call ops, and ops may call link_send, link_send0, link_waiter_*,
# route_count. ops must not call link_read, link_turn or link_committed.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.link.frame cimport LinkFrame
from cext.link.state cimport LinkLimits, LinkOps, LinkSend, LinkWaiter, Links

# `key`: the same for all workers. -1 = no memory.
cdef int links_init(Links* x, const LinkOps* ops, void* owner, const LinkLimits* limits, const HashKey* key, uint32_t self, uint32_t n) noexcept nogil  # parameters: the identity of a worker among its equals
cdef void links_fini(Links* x) noexcept nogil                   # reports nothing; drops the kept messages
# log: random, kept in the store; a worker without a store takes a new one at each start. run: rises with each start of this worker, also
# if the log is new (the parent counts the starts), and is at most 2 ** 24 - 1.
cdef void link_start(Links* x, uint64_t log, uint64_t run) noexcept nogil
cdef int link_restore(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number) noexcept nogil
cdef int link_restore_hole(Links* x, uint32_t slot, uint64_t number) noexcept nogil

# ---- connections. Errors are negative, and close the connection: x.error, link_error_text
cdef void link_connected(Links* x, uint32_t slot) noexcept nogil
# Read HELLO from a new connection. `proved`: the worker that a handshake has proved to be at its other end, and HELLO must name it; from n on: there was
# no handshake, because the parent made the socket. Return the bytes read, 0 = more are needed, or an error: close the connection.
cdef int64_t link_accept(Links* x, const uint8_t* p, size_t n, void* connection, uint32_t proved, uint32_t* slot) noexcept nogil
# Return the bytes of the whole frames that were read; the next one waits if ops.message found no memory. After an error the connection is closed
# (ops.close was called).
cdef int64_t link_read(Links* x, uint32_t slot, int way, const uint8_t* p, size_t n) noexcept nogil
cdef void link_broken(Links* x, uint32_t slot, int way) noexcept nogil
cdef void link_drained(Links* x, uint32_t slot, int way, int64_t pending) noexcept nogil
# The process of this run has ended. run 0 = the one that is known now.
cdef void link_down(Links* x, uint32_t slot, uint64_t run) noexcept nogil
# Send what can be sent, about limits.slice bytes for each link, and the acknowledgements. Return 1 if more could follow at once.
cdef bint link_turn(Links* x) noexcept nogil

# ---- messages
# Return whether the link has no room for so many messages (a publication sends one for plain subscribers and the owner, and one for
# each shared group), of so many bytes in total. link_send itself does not check: a publication is refused as a whole, before anything
# is done, and a message that is chosen again after NO_MEMBER was accepted before.
cdef bint link_full(Links* x, uint32_t slot, uint32_t messages, uint64_t bytes) noexcept nogil
# w may be NULL. -1 = no memory.
# Return whether half of the room of each link is free.
cdef bint link_eased(const Links* x) noexcept nogil
cdef int link_send(Links* x, uint32_t slot, void* message, const LinkSend* s, LinkWaiter* w) noexcept nogil
# f: text, props, payload, flags, group; it arrives as QoS 0. Return whether it was sent; otherwise it is counted as dropped.
cdef bint link_send0(Links* x, uint32_t slot, LinkFrame* f, void* message) noexcept nogil
# Return a worker by its share of the weights, 64 bits of a random number as `random`; -1 = all of those not tried weigh 0.
cdef int link_choose(const uint32_t* weights, uint32_t n, uint64_t tried, uint64_t random) noexcept nogil

# The delivery of a message for which ops.message has answered LINK_LATER is done: log and run of its sender when it came, its number (0 = it had none) and
# identity; `batch`: with the last record of it, or 0.
cdef void link_arrived(Links* x, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, uint64_t identity, uint64_t batch) noexcept nogil

# ---- commits: batches are numbered from 1 in each run
cdef void link_seal(Links* x, uint64_t batch) noexcept nogil
cdef void link_committed(Links* x, uint64_t batch) noexcept nogil

# ---- waiters
# A waiter has the caller's hold, until link_waiter_close: it is released when that and all events are done. NULL = no memory.
cdef LinkWaiter* link_waiter_new(Links* x, void* context) noexcept nogil
cdef void link_waiter_close(Links* x, LinkWaiter* w) noexcept nogil
cdef void link_waiter_cancel(Links* x, LinkWaiter* w) noexcept nogil    # ops.released is not called; not after it was called
cdef int link_wait_commit(Links* x, LinkWaiter* w, uint64_t batch) noexcept nogil
# All workers know the routes of this one. flush: also, the owners have the retained messages that were published before each of them
# knew; required before link_wait_current.
cdef int link_wait_routes(Links* x, LinkWaiter* w, bint flush) noexcept nogil
cdef int link_wait_current(Links* x, LinkWaiter* w) noexcept nogil

# ---- identities of QoS 2 messages
cdef uint64_t link_identity_new(Links* x) noexcept nogil                # 0 = no memory
cdef int link_identity_restore(Links* x, uint64_t identity) noexcept nogil
cdef void link_identity_end(Links* x, uint64_t identity) noexcept nogil
cdef int link_identity_known(Links* x, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil

# ---- retained messages
cdef uint32_t link_owner(const Links* x, View topic) noexcept nogil
# The retained message of a topic that this worker owns is in this batch; a message without payload ends it.
cdef int link_retained(Links* x, void* message, uint64_t batch) noexcept nogil
cdef void link_retained_to(Links* x, uint32_t slot, void* message) noexcept nogil   # from ops.retained_walk
