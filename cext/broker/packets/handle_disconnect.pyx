"""Handle DISCONNECT and PINGREQ from a client [v5 3.14, 3.12] [v3.1.1 3.14, 3.12]."""

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_NORMAL, END_SILENT, END_WITH_WILL, client_room, client_wrote, log_packet
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_DEBUG, log_wanted
from cext.codec.decode cimport Disconnect, decode_disconnect, decode_empty
from cext.codec.encode cimport PINGRESP_SIZE, encode_pingresp
from cext.codec.frame cimport Frame, T_DISCONNECT, T_PINGREQ, T_PINGRESP, V5
from cext.codec.properties cimport P_SESSION_EXPIRY, props_has
from cext.codec.reason cimport RC_PROTOCOL_ERROR

from libc.stdint cimport uint8_t


cdef int handle_disconnect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Disconnect d
    cdef int rc = decode_disconnect(f, c.version, &d)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_DISCONNECT, -1, -1)
    if c.version == V5 and props_has(&d.props, P_SESSION_EXPIRY):
        if c.session.expiry_s == 0 and d.props.session_expiry != 0:
            return RC_PROTOCOL_ERROR     # [v5 3.14.2.2.2]
        c.session.expiry_s = d.props.session_expiry
        if c.session.expiry_s > b.settings.persistent_expiry_s:
            c.session.expiry_s = b.settings.persistent_expiry_s
    return END_NORMAL if d.rc == 0 else END_WITH_WILL        # [v5 3.14.4-3]


cdef int handle_pingreq(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int rc = decode_empty(f)
    cdef uint8_t* p
    if rc:
        return END_SILENT if f.body_len else rc      # a body: closed without a packet, as in Mosquitto
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_PINGREQ, -1, -1)
        log_packet(b, c, "Sending", T_PINGRESP, -1, -1)
    p = client_room(b, c, PINGRESP_SIZE)
    if p != NULL:
        client_wrote(b, c, encode_pingresp(p), p)
    return 0
