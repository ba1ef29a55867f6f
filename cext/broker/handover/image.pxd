# The memory file in which one process hands its state to the next: items with a kind and a length, behind a header with a version and a
# checksum. See image.pyx.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.broker.core.client_state cimport CF_IDENTIFIED, CF_PROBLEM_INFO, CF_REMOTE_BRIDGE
from cext.broker.replay.cursor_state cimport ReadPlace
from cext.broker.core.handover_state cimport HandoverTotals
from cext.net.conn_state cimport Address
from cext.session.session cimport (
    SESSION_BRIDGE, SESSION_DROPPING, SESSION_ORIGIN_UNKNOWN, SESSION_RECHECK, SESSION_STRANGER, SESSION_TRUSTED, SESSION_WILL_STORED,
)

cdef enum:
    IMAGE_FORMAT = 1            # number of the format; a process reads only its own

cdef enum:
    # kinds of items, in the order in which they may occur
    ITEM_BROKER = 1             # ImageBroker; the first one
    ITEM_SECRETS = 2            # ImageSecrets, secrets that the connections of a listener with TLS share
    ITEM_MESSAGE = 3            # ImageMessage, topic, properties, payload; before its first use. Messages have the numbers 1, 2, ...
    ITEM_SESSION = 4            # ImageSession, client id, user name, mount point. The following items belong to it
    ITEM_FILTER = 5             # ImageFilter, filter
    ITEM_DELIVERY = 6           # ImageDelivery, by rising position
    ITEM_INBOX = 7              # ImageInbox
    ITEM_CURSOR = 8             # ImageCursor, filter: a subscription to a stream
    ITEM_GATED = 9              # ImageGated: a delivery that waits for a plugin, by rising position
    ITEM_CLIENT = 10            # ImageClient, and its variable parts. Without a session before it: a connection that has not logged in
    ITEM_ALIAS = 11             # ImageAlias, topic; belongs to the client before it
    ITEM_RETAINED = 12          # ImageRetained
    ITEM_SOURCE = 13            # ImageSource, id, user: the publisher of the retained message before it
    ITEM_END = 14               # the last one; empty
    ITEM_CURSOR_PART = 15       # ImageCursorPart, filter: the place of a subscription to a stream in a further part

cdef enum:
    NO_USER_NAME = 0xFFFFFFFF        # size of a user name that does not exist
    NO_DESCRIPTOR = 0xFFFFFFFF       # ImageClient.fd: the connection stays in the process before, and the new one ends the client
    MOVED_CLIENT_FLAGS = CF_REMOTE_BRIDGE | CF_PROBLEM_INFO | CF_IDENTIFIED
    MOVED_SESSION_FLAGS = (SESSION_DROPPING | SESSION_RECHECK | SESSION_STRANGER | SESSION_BRIDGE | SESSION_TRUSTED | SESSION_WILL_STORED
                           | SESSION_ORIGIN_UNKNOWN)

ctypedef struct ImageBroker:
    HashKey names_key           # key of the hashes in messages
    uint8_t stored              # 1: the broker has a store, and store_id is its id; zeros: it has no record
    uint8_t store_id[16]
    uint32_t n_clients
    uint64_t frozen_us          # monotonic time: the machine is the same, so all monotonic times stay valid
    HandoverTotals totals       # without this upgrade
    uint64_t closed             # connections that do not move

ctypedef struct ImageSecrets:
    uint32_t origin             # the listener

ctypedef struct ImageMessage:
    uint8_t qos
    uint8_t retain
    uint8_t flags
    uint32_t topic_n
    uint32_t props_n
    uint32_t payload_n
    uint64_t expires_ms
    uint64_t source_hash
    uint64_t arrived_ms

ctypedef struct ImageSession:
    uint32_t store_session_id   # 0: the store does not have it
    uint32_t flags
    uint32_t origin
    uint32_t expiry_s
    uint32_t floor
    uint32_t next
    uint32_t tail
    uint32_t unsent
    uint32_t n_deliveries
    uint32_t will               # number of its delayed will; 0: none, or in the store
    uint32_t user_n             # NO_USER_NAME: none
    uint32_t inherited
    uint64_t ends_ms
    uint64_t will_due_ms
    uint16_t id_n
    uint16_t mount_n
    uint16_t last_pid
    uint16_t turn               # Inbox.turn

ctypedef struct ImageFilter:
    uint32_t sub_id
    uint8_t options

ctypedef struct ImageDelivery:
    uint32_t position
    uint32_t sub_id
    uint32_t message            # number; 0: none, or it is in the store
    uint16_t pid
    uint8_t qos
    uint8_t state

ctypedef struct ImageInbox:
    uint32_t message            # number; 0: none, or it is in the store
    uint16_t pid
    uint16_t turn
    uint16_t copies_turn
    uint8_t copies
    uint8_t flags               # flags of its message, in the store too

ctypedef struct ImageCursor:
    ReadPlace where             # in the first part
    uint32_t sub_id
    uint8_t options

ctypedef struct ImageCursorPart:
    ReadPlace where
    uint32_t number             # of the part

ctypedef struct ImageGated:
    uint32_t position           # in the plugin gate
    uint32_t sub_id
    uint32_t message            # number
    uint8_t qos
    uint8_t retain

ctypedef struct ImageClient:
    uint32_t fd                 # position among the descriptors; NO_DESCRIPTOR: none, and nothing follows
    uint32_t origin             # its listener
    uint64_t rx_ms
    Address address
    uint32_t packet_max
    uint16_t keepalive_s
    uint16_t alias_max_in
    uint16_t alias_max_out      # 0: none
    uint16_t window
    uint16_t receive_max
    uint8_t version
    uint8_t flags               # MOVED_CLIENT_FLAGS of them
    uint8_t web                 # WebStage; 0: none
    uint8_t close_sent
    uint8_t ws_n                # bytes of the WsDecoder that are in use; 0: none
    uint32_t framed             # bytes at the front of the unsent output that already have a frame header
    uint32_t in_need
    uint32_t will               # number of its will; 0: none
    uint32_t will_delay_s
    uint32_t will_expiry_s
    uint8_t will_has_expiry
    uint32_t proxied_n
    uint32_t path_n
    uint32_t method_n
    uint32_t transport_n        # state of its TLS; 0: none
    uint32_t in_n
    uint32_t out_n

ctypedef struct ImageAlias:
    uint16_t alias
    uint8_t given               # 1: given to the client; 0: taken from it

ctypedef struct ImageRetained:
    uint32_t message

ctypedef struct ImageSource:
    uint32_t origin
    uint32_t id_n
    uint32_t user_n

ctypedef struct ImageWriter:
    int32_t fd
    int32_t error               # errno of the first failure; later calls do nothing
    uint8_t* p
    uint64_t n
    uint64_t room

ctypedef struct ImageReader:
    int32_t fd
    uint8_t* p                  # a read-only mapping
    uint64_t n
    uint64_t at
    char* why
    uint32_t why_n

cdef int image_begin(ImageWriter* w) noexcept nogil                     # 0 or errno
# Return room for n bytes of an item; NULL after an error.
cdef uint8_t* image_item(ImageWriter* w, int kind, uint64_t n) noexcept nogil
# Complete the header, seal the file, and free the writer. Return the file's descriptor, or -1 with `error`; then it is closed.
cdef int image_end(ImageWriter* w) noexcept nogil

# Check the seals, the header, the checksum and the bounds of all items. Return 0; otherwise `why` has the reason.
cdef int image_open(ImageReader* r, int fd, char* why, uint32_t why_n) noexcept nogil
cdef int image_next(ImageReader* r, View* body) noexcept nogil          # kind of the next item; 0: there is none
cdef void image_close(ImageReader* r) noexcept nogil
# Copy the fixed part of an item. Return 0 if the body is shorter. *body becomes what follows.
cdef bint image_head(View* body, void* out, size_t n) noexcept nogil
# Take n bytes of the body. Return 0 if it is shorter.
cdef bint image_part(View* body, uint64_t n, View* out) noexcept nogil
