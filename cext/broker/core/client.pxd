# A client: a connection that speaks MQTT. Small packets to it, requests for its end, its log lines.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Aliases, Client
from cext.net.conn_state cimport Address

cdef enum:
    # reasons of a client's end, beside the reason codes 0x80..0xFF
    END_NORMAL = 0x100          # DISCONNECT with 0x00
    END_WITH_WILL = 0x101       # DISCONNECT with 0x04 (or another code): the will is sent
    END_LOST = 0x102            # the peer closed the connection
    END_REFUSED = 0x103         # CONNACK carried the reason
    END_SILENT = 0x104          # closed without a packet (3.x, or before CONNECT)
    END_UPGRADE = 0x200         # + the error of the HTTP request (WRONG_ of net/upgrade); the HTTP response has carried it
    END_ERRNO = 0x1000          # + errno

cdef enum:
    ADDRESS_TEXT_MAX = 112      # bytes of an address in a line: a path of a Unix socket has at most 108

cdef Client* client_take(Broker* b) noexcept nogil
cdef void client_give(Broker* b, Client* c) noexcept nogil          # at the end of a turn, when nothing points to it
# Request the end of a client, from anywhere, also in the middle of a fan-out. The client ends before the flush of the turn.
cdef void client_doom(Broker* b, Client* c, int reason) noexcept nogil
cdef uint8_t* client_room(Broker* b, Client* c, uint32_t n) noexcept nogil   # conn_room; NULL dooms the client
cdef void client_wrote(Broker* b, Client* c, uint8_t* end, uint8_t* start) noexcept nogil
cdef void client_ack(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil
cdef void client_disconnect(Broker* b, Client* c, uint8_t rc) noexcept nogil     # v5 only; no-op for other versions
# AUTH [v5 3.15]; data.p NULL: without data
cdef void auth_send(Broker* b, Client* c, uint8_t rc, View data) noexcept nogil
cdef Aliases* aliases_of(Client* c) noexcept nogil                   # NULL: no memory
cdef void aliases_begin(Client* c, uint16_t most) noexcept nogil     # aliases to the peer; without memory there are none
cdef void aliases_free(Client* c) noexcept nogil

cdef inline bint gives_aliases(const Client* c) noexcept nogil:
    return c.aliases != NULL and c.aliases.given.slots != NULL

cdef View client_id_of(Client* c) noexcept nogil                    # "" until there is a session
cdef View username_of(Client* c) noexcept nogil                     # p NULL: none

# log lines
cdef int address_text(const Address* a, char* out, uint32_t n) noexcept nogil     # "A"; log lines add ":P"
# address_text of a client: behind a proxy that has got it over a Unix socket, the path of that socket
cdef int client_address(const Client* c, char* out, uint32_t n) noexcept nogil
cdef void log_text(Broker* b, uint32_t type, const char* text) noexcept nogil
cdef void log_line(Broker* b, uint32_t type, int n) noexcept nogil   # logs b.log.line; n: result of snprintf
cdef void log_line_of(Broker* b, Client* c, uint32_t type, int n) noexcept nogil     # about a client other than the one whose packet is handled
cdef void log_connected(Broker* b, Client* c, bint clean, int keepalive_s) noexcept nogil     # with the values of its CONNECT
# Return 1 if one more denial may be logged at notice (log_denied_per_second). Others are counted, and the count is logged.
cdef bint denial_logged(Broker* b) noexcept nogil
# Return whether a line about a connection from this address may be logged. `kind`: LINE_ of log_rate.pxd.
cdef bint line_allowed(Broker* b, const Address* a, int kind) noexcept nogil
# The same for a line of this log type about what a client has sent. Every such line asks, or a client can fill the disk.
cdef bint peer_line_wanted(Broker* b, const Client* c, uint32_t type, int kind) noexcept nogil
cdef void lines_sum(Broker* b) noexcept nogil       # at the end of the window: log how many lines were left out
cdef void denials_sum(Broker* b) noexcept nogil     # at the end of the second
cdef const char* reason_text(int reason) noexcept nogil      # NULL: a normal end
cdef void log_ended(Broker* b, Client* c, int reason) noexcept nogil
# Log "Received PUBACK from ID (Mid: N, RC:R)", "Sending PUBACK to ID (mN, rcR)" and the like, at debug. pid -1: none.
cdef void log_packet(Broker* b, Client* c, const char* what, int packet_type, int pid, int rc) noexcept nogil
