"""Handle SUBSCRIBE and UNSUBSCRIBE [v5 3.8 to 3.11] [v3.1.1 3.8 to 3.11]. All filters of a packet take effect, then SUBACK is
sent, then the retained messages follow in the order of the filters. A packet of many filters is handled in slices.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport EVENT_SUBSCRIBED, EVENT_UNSUBSCRIBED, event_post
from cext.broker.core.bounds cimport WORK_FILTER
from cext.broker.core.access cimport access_by_roles, access_may_subscribe, session_names
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    ADDRESS_TEXT_MAX, client_address, client_id_of, client_room, client_wrote, denial_logged, log_line, log_packet,
    peer_line_wanted,
)
from cext.broker.core.client_state cimport CF_REMOTE_BRIDGE, Client
from cext.broker.core.durable cimport durable_refuses
from cext.broker.core.log cimport LOG_DEBUG, LOG_INFORMATION, LOG_LINE_MAX, LOG_NOTICE, LOG_SUBSCRIBE, LOG_UNSUBSCRIBE, log_wanted
from cext.broker.core.log_rate cimport LINE_PROTOCOL
from cext.broker.core.session_refs cimport session_security
from cext.broker.core.subscription cimport parse_mounted
from cext.broker.links.own cimport ROUTE_NONE, own_route
from cext.broker.packets.authorize cimport filter_changed, filter_refused
from cext.broker.packets.filter_slices cimport FilterSlice, ROUTES_FAILED, ROUTES_NEW, filters_await_routes, filters_end, filters_failed, filters_open, filters_rewind
from cext.broker.persist.events cimport event_subscribed, event_unsubscribed
from cext.broker.persist.pending_acks cimport hold_output
from cext.broker.persist.persist cimport persist_reserve, persist_subscription, persist_subscription_end
from cext.broker.persist.publication cimport memory_short
from cext.broker.replay.cursor cimport cursor_close, cursor_open, cursor_wanted
from cext.broker.routing.plugin_gate cimport ACL_SUBSCRIBE, ACL_UNSUBSCRIBE
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED
from cext.broker.routing.retain cimport replay_begin, replay_has_room
from cext.codec.decode cimport SubscribeItem, subscribe_next, unsubscribe_next
from cext.codec.encode cimport encode_suback, suback_size
from cext.codec.frame cimport Frame, T_SUBACK, T_SUBSCRIBE, T_UNSUBACK, T_UNSUBSCRIBE, V5
from cext.codec.properties cimport P_SUBSCRIPTION_ID, props_has
from cext.codec.reason cimport (
    RC_MALFORMED, RC_NOT_AUTHORIZED, RC_NO_SUBSCRIPTION_EXISTED, RC_PROTOCOL_ERROR, RC_QUOTA_EXCEEDED, RC_SUCCESS,
    RC_TOPIC_FILTER_INVALID, RC_UNSPECIFIED,
)
from cext.session.message cimport RECORD_ROOM
from cext.session.session cimport Session
from cext.topic.index cimport Entry, INDEX_ADDED, INDEX_REMOVED, index_add, index_entry, index_remove
from cext.topic.name cimport Filter, level_count
from cext.topic.retained cimport retained_may_match

cdef enum:
    REPLAY = 0x40                # flag on a granted QoS until SUBACK is sent: retained messages follow
    AWAITED = 0x20               # the same: other workers do not know the filter yet
    QOS = 3


cdef uint8_t subscription_options(Client* c, uint8_t wire) noexcept nogil:
    cdef uint8_t options = wire
    if options & QOS > c.listener.max_qos:
        options = (options & ~<uint8_t>QOS) | c.listener.max_qos
    if c.version != V5 and c.flags & CF_REMOTE_BRIDGE:
        options |= NO_LOCAL | RETAIN_AS_PUBLISHED    # a bridge of Mosquitto relies on these
    return options


cdef int subscribe_one(Broker* b, Client* c, SubscribeItem* item, uint32_t sub_id, bint refused, uint8_t* code,    # parameters: three results
                       uint8_t* routes) noexcept nogil:
    """Handle one filter. *code gets the reason code for SUBACK, plus REPLAY if retained messages follow; *routes, if other workers do not know it. A result other than 0
    ends the client."""
    cdef Filter f
    cdef uint8_t* owned
    cdef uint8_t options = subscription_options(c, item.options)
    cdef int added, handling
    cdef Entry* before
    cdef int old = ROUTE_NONE
    cdef int rc = parse_mounted(c, item.filter, &f, &owned)
    if rc:
        free(owned)
        return filter_invalid(b, c)
    if level_count(f.filter.p, f.filter.n) > b.settings.topic_levels_max:
        free(owned)
        code[0] = RC_TOPIC_FILTER_INVALID if c.version == V5 else RC_UNSPECIFIED     # well-formed, but not accepted here
        return 0
    if f.group.n and c.version == V5 and options & NO_LOCAL:
        free(owned)
        return RC_PROTOCOL_ERROR         # [v5 3.8.3-4]
    if refused or not rules_allow(b, c.session, f.filter, mounted_filter(item.filter, owned, c), ACL_SUBSCRIBE):
        free(owned)
        code[0] = RC_NOT_AUTHORIZED if c.version == V5 else RC_UNSPECIFIED
        log_subscribe(b, c, item.filter, -1)
        log_denial(b, c, item.filter, options, "")
        return 0
    if cursor_wanted(b, f.filter):
        stream_subscribed(b, c, item, &f, options, sub_id, code)
        free(owned)
        return 0
    added = -1
    if not memory_short(b, 0) and (c.session.store_session_id == 0 or not durable_refuses(b)) \
            and replay_has_room(c.session, f.filter.n) and persist_reserve(b, c.session, RECORD_ROOM + f.filter.n + f.group.n):
        before = index_entry(b.index, &c.session.owner, &f) if b.links != NULL else NULL
        old = before.options & QOS if before != NULL else ROUTE_NONE
        added = index_add(b.index, &c.session.owner, c.session, &f, options, sub_id)
    if added < 0:
        free(owned)
        refuse_for_room(b, c, item, options, code)
        return 0
    code[0] = options & QOS
    handling = (options >> 4) & 3        # [v5 3.3.1-9..11]
    if f.group.n == 0 and (b.links != NULL or retained_may_match(b.retained, f.filter)) and (
            handling == 0 or (handling == 1 and added == INDEX_ADDED)):
        code[0] |= REPLAY
    persist_subscription(b, c.session, mounted_filter(item.filter, owned, c), options, sub_id)
    if b.links != NULL and not subscription_announce(b, c, &f, mounted_filter(item.filter, owned, c), old, code, routes):
        free(owned)
        refuse_for_room(b, c, item, options, code)
        return 0
    event_subscribed(b, c.session, mounted_filter(item.filter, owned, c), options, sub_id)
    free(owned)
    log_subscribe(b, c, item.filter, options & QOS)
    notify_subscription(b, c, EVENT_SUBSCRIBED, item.filter)
    return 0


cdef bint subscription_announce(Broker* b, Client* c, const Filter* f, View whole, int old, uint8_t* code,     # parameters: two results
                                uint8_t* routes) noexcept nogil:
    """Announce a subscription that was granted with *code to other workers. `old`: the QoS of the one that it replaced. Returns 0 without memory for it: then it is refused."""
    cdef int wider = own_route(b, c.session, whole, code[0] & QOS, old)
    if wider < 0:
        subscription_end(b, c, f, whole, ROUTE_NONE)
        return 0
    if wider:
        code[0] |= AWAITED
    if code[0] & (AWAITED | REPLAY):
        routes[0] = ROUTES_NEW
    return 1


cdef bint subscription_end(Broker* b, Client* c, const Filter* f, View whole, int qos) noexcept nogil:
    """Remove a subscription. `whole`: the filter with mount point and group; qos: what its route counts. Returns 0 if there is none."""
    if index_remove(b.index, &c.session.owner, f) != INDEX_REMOVED:
        return 0
    persist_subscription_end(b, c.session, whole)
    own_route(b, c.session, whole, ROUTE_NONE, qos)
    event_unsubscribed(b, c.session, whole)
    return 1


cdef void withdraw_one(Broker* b, Client* c, SubscribeItem* item, uint8_t* code) noexcept nogil:
    """Refuse a filter that other workers have not confirmed in time."""
    cdef Filter f
    cdef uint8_t* owned
    if code[0] >= 0x80 or not code[0] & AWAITED:
        return
    if parse_mounted(c, item.filter, &f, &owned) == 0:
        persist_reserve(b, c.session, RECORD_ROOM + f.filter.n + f.group.n)
        if subscription_end(b, c, &f, mounted_filter(item.filter, owned, c), code[0] & QOS):
            notify_subscription(b, c, EVENT_UNSUBSCRIBED, item.filter)
    free(owned)
    code[0] = RC_QUOTA_EXCEEDED if c.version == V5 else RC_UNSPECIFIED
    log_denial(b, c, item.filter, item.options, ": not all workers have confirmed it within route_timeout")


cdef void refuse_for_room(Broker* b, Client* c, SubscribeItem* item, uint8_t options, uint8_t* code) noexcept nogil:
    """Refuse a filter for which there is no memory, or no room in the store."""
    code[0] = RC_QUOTA_EXCEEDED if c.version == V5 else RC_UNSPECIFIED
    log_denial(b, c, item.filter, options, ": no memory, or no room in the store")


cdef void log_denial(Broker* b, Client* c, View filter, uint8_t options, const char* why) noexcept nogil:
    """Log a refused filter, up to a number per second. The debug log has the SUBSCRIBE, but no reason."""
    if (log_wanted(&b.log, LOG_DEBUG) and why[0] == 0) or not log_wanted(&b.log, LOG_NOTICE) or not denial_logged(b):
        return
    log_line(b, LOG_NOTICE, snprintf(
        b.log.line, LOG_LINE_MAX, "Denied SUBSCRIBE from %.*s (q%d, '%.*s')%s", <int>c.session.id_len,
        <const char*>c.session.client_id, <int>(options & QOS), <int>filter.n, <const char*>filter.p, why))


cdef const char* stream_refusal(uint8_t code) noexcept nogil:
    """Return why a `$stream` filter was refused, as the end of a log line."""
    if code == RC_TOPIC_FILTER_INVALID:
        return ": no such stream, or not $stream/NAME/first|last|now|TIME|POSITION/FILTER"
    if code == RC_QUOTA_EXCEEDED:
        return ": too many subscriptions to streams, or no memory"
    return ""


cdef void stream_subscribed(Broker* b, Client* c, SubscribeItem* item, const Filter* f, uint8_t options, uint32_t sub_id,
                            uint8_t* code) noexcept nogil:
    """Subscribe to a stream by a cursor, which is in no index and no store. Its records come in a later turn."""
    code[0] = RC_QUOTA_EXCEEDED if memory_short(b, 0) else cursor_open(b, c.session, f, options, sub_id)
    if code[0] >= 0x80:
        log_subscribe(b, c, item.filter, -1)
        log_denial(b, c, item.filter, options, stream_refusal(code[0]))
        code[0] = code[0] if c.version == V5 else RC_UNSPECIFIED
        return
    event_subscribed(b, c.session, f.whole, options, sub_id)
    log_subscribe(b, c, item.filter, options & QOS)
    notify_subscription(b, c, EVENT_SUBSCRIBED, item.filter)


cdef void notify_subscription(Broker* b, Client* c, int event, View filter) noexcept nogil:
    cdef View id, user
    if c.session.security != NULL and session_security(c.session).events:
        session_names(c.session, &id, &user)
        event_post(b, c, event, id, user, filter, 2, 0)


cdef View mounted_filter(View text, const uint8_t* owned, Client* c) noexcept nogil:
    """Return the filter with the mount point, as parse_mounted made it, including $share/GROUP/."""
    cdef View whole = text
    if owned != NULL:
        whole.p = owned
        whole.n = text.n + c.listener.mount_point.n
    return whole


cdef bint rules_allow(Broker* b, Session* s, View filter, View whole, uint8_t access) noexcept nogil:
    """Return whether the rules allow the access. If a plugin decides, its verdict stands above the rules."""
    if s.security == NULL or session_security(s).authorize:
        return 1
    if not access_by_roles(b, s, whole, access):
        return 0
    return access == ACL_UNSUBSCRIBE or access_may_subscribe(b, s, filter)


cdef int filter_invalid(Broker* b, Client* c) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_INFORMATION, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "Invalid subscription string from %s, disconnecting.",
                                              where))
    return RC_MALFORMED          # [v5 4.7.1-1] [v3.1.1 4.7.1-2]; 0x8F is for well-formed filters [v5 3.14.2.1]


cdef void log_subscribe(Broker* b, Client* c, View filter, int qos) noexcept nogil:
    cdef View id = client_id_of(c)
    if log_wanted(&b.log, LOG_DEBUG):
        if qos < 0:
            log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "\t%.*s (denied)", <int>filter.n, <const char*>filter.p))
        else:
            log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "\t%.*s (QoS %d)", <int>filter.n,
                                            <const char*>filter.p, qos))
    if qos >= 0 and log_wanted(&b.log, LOG_SUBSCRIBE):
        log_line(b, LOG_SUBSCRIBE, snprintf(b.log.line, LOG_LINE_MAX, "%.*s %d %.*s", <int>id.n, <const char*>id.p, qos,
                                            <int>filter.n, <const char*>filter.p))


cdef bint wants_retained(const FilterSlice* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n):
        if t.codes[i] < 0x80 and t.codes[i] & REPLAY:
            return 1
    return 0


cdef int handle_subscribe(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef FilterSlice t
    cdef SubscribeItem item
    cdef uint32_t sub_id = 0
    cdef uint8_t options
    cdef bint changed
    cdef int rc = filters_open(b, c, f, ACL_SUBSCRIBE, &t)
    if rc:
        return rc
    if c.version == V5 and props_has(&t.packet.props, P_SUBSCRIPTION_ID):
        sub_id = t.packet.props.sub_id
    if t.n == 0 and not t.acknowledged and log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_SUBSCRIBE, -1, -1)
    if not t.acknowledged:
        while filters_failed(c, &t, f) and b.work < t.limit and subscribe_next(&t.packet, &item):
            filter_changed(c, t.n, &item)
            withdraw_one(b, c, &item, &t.codes[t.n])
            b.work += WORK_FILTER
            t.n += 1
        while rc == 0 and t.routes != ROUTES_FAILED and b.work < t.limit and subscribe_next(&t.packet, &item):
            options = subscription_options(c, item.options)
            changed = filter_changed(c, t.n, &item)
            rc = subscribe_one(b, c, &item, sub_id, filter_refused(c, <int>t.n), &t.codes[t.n], &t.routes)
            if changed and t.codes[t.n] < 0x80:
                t.codes[t.n] = (t.codes[t.n] & (REPLAY | AWAITED)) | (options & QOS)        # the client learns nothing of the change, as in Mosquitto
            b.work += WORK_FILTER
            t.n += 1
        if rc == 0 and t.packet.items.n == 0:
            rc = filters_await_routes(b, c, &t, wants_retained(&t))
        if rc == 0 and t.packet.items.n == 0:
            hold_output(b, c, t.changes, 0)
            rc = suback(b, c, T_SUBACK, t.packet.pid, t.codes, t.n)
            filters_rewind(&t, f, c.version)
    while rc == 0 and t.acknowledged and b.work < t.limit and subscribe_next(&t.packet, &item):
        if t.codes[t.n] < 0x80 and t.codes[t.n] & REPLAY:
            filter_changed(c, t.n, &item)
            replay_retained(b, c, &item)
            b.work += WORK_FILTER
        t.n += 1
    return filters_end(b, c, &t, rc)


cdef int suback(Broker* b, Client* c, int packet_type, int pid, uint8_t* codes, uint32_t n) noexcept nogil:
    cdef uint8_t small_codes[64]
    cdef uint8_t* granted = small_codes
    cdef uint8_t* p
    cdef uint32_t i
    if n > sizeof(small_codes):
        granted = <uint8_t*>malloc(n)
        if granted == NULL:
            return RC_QUOTA_EXCEEDED
    for i in range(n):
        granted[i] = codes[i] if codes[i] >= 0x80 else codes[i] & ~<uint8_t>(REPLAY | AWAITED)
    p = client_room(b, c, suback_size(c.version, n))
    if p != NULL:
        client_wrote(b, c, encode_suback(p, packet_type, c.version, <unsigned short>pid, granted, n), p)
        if log_wanted(&b.log, LOG_DEBUG):
            log_packet(b, c, "Sending", packet_type, -1, -1)
    if granted != small_codes:
        free(granted)
    return 0


cdef void replay_retained(Broker* b, Client* c, SubscribeItem* item) noexcept nogil:
    cdef Filter f
    cdef uint8_t* owned
    if parse_mounted(c, item.filter, &f, &owned) == 0:
        replay_begin(b, c.session, &f)
    free(owned)


cdef int handle_unsubscribe(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef FilterSlice t
    cdef SubscribeItem item
    cdef int rc = filters_open(b, c, f, ACL_UNSUBSCRIBE, &t)
    if rc:
        return rc
    if t.n == 0 and log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_UNSUBSCRIBE, -1, -1)
    while rc == 0 and b.work < t.limit and unsubscribe_next(&t.packet, &item.filter):
        filter_changed(c, t.n, &item)
        rc = unsubscribe_one(b, c, item.filter, filter_refused(c, <int>t.n), &t.codes[t.n])
        b.work += WORK_FILTER
        t.n += 1
    if rc == 0 and t.packet.items.n == 0:
        hold_output(b, c, t.changes, 0)
        rc = suback(b, c, T_UNSUBACK, t.packet.pid, t.codes, t.n)
    return filters_end(b, c, &t, rc)


cdef int unsubscribe_one(Broker* b, Client* c, View filter, bint refused, uint8_t* code) noexcept nogil:
    """Handle one filter. *code gets the reason code for UNSUBACK. A result other than 0 ends the client."""
    cdef View id = client_id_of(c)
    cdef Filter parsed
    cdef Entry* before
    cdef int old = ROUTE_NONE
    cdef uint8_t* owned = NULL
    cdef int rc = 0
    if b.links != NULL and parse_mounted(c, filter, &parsed, &owned) == 0:
        before = index_entry(b.index, &c.session.owner, &parsed)
        old = before.options & QOS if before != NULL else ROUTE_NONE
    free(owned)
    owned = NULL
    if parse_mounted(c, filter, &parsed, &owned) != 0:
        rc = filter_invalid(b, c)
    elif refused or not rules_allow(b, c.session, parsed.filter, mounted_filter(filter, owned, c), ACL_UNSUBSCRIBE):
        code[0] = RC_NOT_AUTHORIZED
    elif parsed.group.n == 0 and cursor_wanted(b, parsed.filter):
        code[0] = RC_SUCCESS if cursor_close(b, c.session, parsed.filter) else RC_NO_SUBSCRIPTION_EXISTED
        if code[0] == RC_SUCCESS:
            event_unsubscribed(b, c.session, parsed.whole)
            notify_subscription(b, c, EVENT_UNSUBSCRIBED, filter)
    elif not persist_reserve(b, c.session, RECORD_ROOM + parsed.filter.n + parsed.group.n):
        code[0] = RC_QUOTA_EXCEEDED
        rc = 0 if c.version == V5 else RC_QUOTA_EXCEEDED         # protocols before 5.0 have no code for it
    elif subscription_end(b, c, &parsed, mounted_filter(filter, owned, c), old):
        code[0] = RC_SUCCESS
        notify_subscription(b, c, EVENT_UNSUBSCRIBED, filter)
    else:
        code[0] = RC_NO_SUBSCRIPTION_EXISTED
    free(owned)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "\t%.*s", <int>filter.n, <const char*>filter.p))
    if log_wanted(&b.log, LOG_UNSUBSCRIBE):
        log_line(b, LOG_UNSUBSCRIBE, snprintf(b.log.line, LOG_LINE_MAX, "%.*s %.*s", <int>id.n, <const char*>id.p,
                                              <int>filter.n, <const char*>filter.p))
    return rc
