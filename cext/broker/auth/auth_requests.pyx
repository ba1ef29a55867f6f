"""Send auth requests to the control plane and take its answers. This module knows requests as bytes, handles and deadlines. It does not know the
effect of an answer (answer.pyx), or Python.

    auth_request_new -> auth_request_send -> ring --swap--> Engine.requests()        (its event descriptor becomes readable)
                             | no room: queued, sent when the reader has made some
    Engine.answer() -> answers, a list under a lock --wake--> answers_next -> auth_request_of(handle) -> auth_request_end

Invariants: a handle is a slab's index and generation, so a late, repeated or misdirected answer finds no auth request. Every auth request has a
deadline. The ring is bounded; a request that finds it full waits with its client, which is not read from in this time. The loop holds the lock no
longer than a copy takes.
Cost: O(1) and about 100 bytes per auth request.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from cext.base.slab cimport Slab, slab_at, slab_end, slab_fini, slab_get, slab_give, slab_init, slab_take
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.auth.proxy_info cimport proxied_identity
from cext.broker.auth.tls_identity cimport IDENTITY_BYTES, TLS_NAME_MAX, tls_identity, tls_identity_fields
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, client_address
from cext.broker.core.client_state cimport Client, TIMER_AUTH_REQUEST
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from cext.broker.core.pending_packet cimport method_of, pending_packet_resume
from cext.broker.core.session_refs cimport session_client, session_security
from cext.codec.decode cimport Connect, decode_connect
from cext.codec.frame cimport Frame, V5, frame_next
from cext.codec.properties cimport P_AUTH_DATA, P_AUTH_METHOD, props_has
from cext.net.reactor cimport reactor_wake
from cext.session.message cimport Message, message_ref, message_unref
from cext.session.session cimport Session

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* p, size_t n)

cdef enum:
    BLOCK_QUESTIONS = 64
    IDLE_AUTH_REQUESTS_MAX = 1024

cdef struct AuthRequests:
    pthread_mutex_t lock
    uint8_t* filling             # the loop appends here; the reader swaps
    uint8_t* draining
    uint32_t used
    uint32_t filling_cap
    uint32_t draining_cap
    bint starved                 # a request found no room: the reader wakes the loop
    bint open
    AuthAnswer* first
    AuthAnswer* last
    Slab questions
    AuthRequest* waiting            # auth requests that found no room
    AuthRequest* waiting_last


cdef inline AuthRequests* auth_requests_of(Broker* b) noexcept nogil:
    return <AuthRequests*>b.auth_requests


cdef int auth_requests_init(Broker* b) noexcept nogil:
    cdef AuthRequests* a = <AuthRequests*>calloc(1, sizeof(AuthRequests))
    if a == NULL:
        return -1
    pthread_mutex_init(&a.lock, NULL)
    a.open = 1                   # also before the loop runs: plugins publish in their initialization
    slab_init(&a.questions, sizeof(AuthRequest), BLOCK_QUESTIONS, IDLE_AUTH_REQUESTS_MAX)
    b.auth_requests = a
    return 0


cdef void auth_requests_fini(Broker* b) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    if a == NULL:
        return
    auth_requests_close(b)
    pthread_mutex_destroy(&a.lock)
    slab_fini(&a.questions)
    free(a.filling)
    free(a.draining)
    free(a)
    b.auth_requests = NULL


cdef void auth_requests_close(Broker* b) noexcept nogil:
    """Stop reading answers."""
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthAnswer* answer
    pthread_mutex_lock(&a.lock)
    a.open = 0
    while a.first != NULL:
        answer = a.first
        a.first = answer.next
        free(answer)
    a.last = NULL
    pthread_mutex_unlock(&a.lock)


# ---------------------------------------------------------------- the ring

cdef bint ring_room(AuthRequests* a, uint32_t need) noexcept nogil:
    """Is there room? Called with the lock held. A record larger than the ring gets a ring of its size, alone."""
    cdef uint8_t* bytes
    if a.used + <uint64_t>need <= a.filling_cap:
        return 1
    if a.used:
        return 0
    bytes = <uint8_t*>realloc(a.filling, need if need > AUTH_RING_BYTES else AUTH_RING_BYTES)
    if bytes == NULL:
        return 0
    a.filling = bytes
    a.filling_cap = need if need > AUTH_RING_BYTES else AUTH_RING_BYTES
    return 1


cdef bint native_answers(Broker* b, AuthRequestHead* head, const View* fields) noexcept nogil:
    """Ask the native plugins that are called on the loop. Return whether the request is done: it is answered, or the answer comes later. If
    not, the control plane gets it, perhaps as a request of another kind."""
    cdef Security* security = b.securities[head.security] if head.security < b.n_securities else NULL
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthAnswer* answer
    cdef int waits = 0
    if security == NULL or security.native_realm == NULL or (head.kind == ASK_ACL and auth_request_of(b, head.handle).natives_asked):
        return 0
    if head.kind == ASK_CONNECT and auth_request_of(b, head.handle).pause_checked:
        waits = NATIVE_NO_PAUSE
    answer = (<native_ask_fn>security.native_ask)(security.native_realm, head, fields, &waits)
    if answer == NULL:
        if waits == NATIVE_PAUSE:
            head.kind = ASK_PAUSE
        return waits == NATIVE_WAITS
    pthread_mutex_lock(&a.lock)
    if a.last != NULL:
        a.last.next = answer
    else:
        a.first = answer
    a.last = answer
    pthread_mutex_unlock(&a.lock)
    b.answers_due = 1            # in this turn
    return 1


cdef bint request_put(Broker* b, AuthRequestHead* head, const View* fields) noexcept nogil:
    """Append a request to the ring. Return 0 if there is no room now."""
    cdef AuthRequests* a = auth_requests_of(b)
    cdef uint64_t need = sizeof(AuthRequestHead)
    cdef uint32_t i, n
    cdef uint8_t* p
    for i in range(head.n_fields):
        need += sizeof(uint32_t) + fields[i].n
    need = (need + 7) & ~<uint64_t>7
    if need > 0x7FFFFFFF:
        return 0
    head.total = <uint32_t>need
    if head.kind != ASK_BRIDGE and head.kind != ASK_CONTROL and native_answers(b, head, fields):
        return 1
    pthread_mutex_lock(&a.lock)
    if not ring_room(a, head.total):
        a.starved = 1
        pthread_mutex_unlock(&a.lock)
        return 0
    p = a.filling + a.used
    memcpy(p, head, sizeof(AuthRequestHead))
    p += sizeof(AuthRequestHead)
    for i in range(head.n_fields):
        n = fields[i].n if fields[i].p != NULL else AUTH_FIELD_NONE
        memcpy(p, &n, sizeof(n))
        p += sizeof(n)
        if fields[i].n:
            memcpy(p, fields[i].p, fields[i].n)
            p += fields[i].n
    a.used += head.total
    pthread_mutex_unlock(&a.lock)
    b.auth_requests_unread = 1
    return 1


cdef const uint8_t* auth_requests_swap(Broker* b, uint32_t* n) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    cdef uint8_t* half
    cdef uint32_t cap
    cdef bint starved
    pthread_mutex_lock(&a.lock)
    half = a.filling
    cap = a.filling_cap
    a.filling = a.draining
    a.filling_cap = a.draining_cap
    a.draining = half
    a.draining_cap = cap
    n[0] = a.used
    a.used = 0
    starved = a.starved
    a.starved = 0
    pthread_mutex_unlock(&a.lock)
    if starved:
        reactor_wake(&b.reactor)
    return half


cdef inline uint32_t place_after(uint32_t place, const uint32_t* before, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if before[i] == place + 1:
            return i
    return NOWHERE


cdef void auth_requests_move(Broker* b, const uint32_t* before, uint32_t n) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthRequestHead* head
    cdef uint32_t at = 0
    pthread_mutex_lock(&a.lock)
    while at < a.used:
        head = <AuthRequestHead*>(a.filling + at)
        head.security = place_after(head.security, before, n)
        at += head.total
    pthread_mutex_unlock(&a.lock)


cdef bint commands_wait(Broker* b) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthRequestHead* head
    cdef uint32_t at = 0
    cdef bint found = 0
    pthread_mutex_lock(&a.lock)
    while at < a.used and not found:
        head = <AuthRequestHead*>(a.filling + at)
        found = head.kind == ASK_CONTROL
        at += head.total
    pthread_mutex_unlock(&a.lock)
    return found


cdef void answers_post(Broker* b, AuthAnswer* first, AuthAnswer* last) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthAnswer* answer
    cdef bint open
    pthread_mutex_lock(&a.lock)
    open = a.open
    if open:
        if a.last != NULL:
            a.last.next = first
        else:
            a.first = first
        a.last = last
    pthread_mutex_unlock(&a.lock)
    if open:
        reactor_wake(&b.reactor)
        return
    while first != NULL:
        answer = first
        first = answer.next
        free(answer)


cdef AuthAnswer* answers_next(Broker* b) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    cdef AuthAnswer* answer
    pthread_mutex_lock(&a.lock)
    answer = a.first
    if answer != NULL:
        a.first = answer.next
        if a.first == NULL:
            a.last = NULL
    pthread_mutex_unlock(&a.lock)
    return answer


# ---------------------------------------------------------------- questions

cdef AuthRequest* auth_request_new(Broker* b, int kind, Client* c, Session* s, Message* m) noexcept nogil:
    cdef AuthRequest* q = <AuthRequest*>slab_take(&auth_requests_of(b).questions)
    if q == NULL:
        return NULL
    q.kind = <uint8_t>kind
    if c != NULL:
        q.client_index = c.slab.index
        q.client_generation = c.slab.generation
    q.session = s
    if s != NULL:
        s.jobs += 1
        q.turn = s.access_turn
    if m != NULL:
        q.message = message_ref(m)
    q.timer.kind = TIMER_AUTH_REQUEST
    return q


cdef int auth_request_bytes(AuthRequest* q, View v) noexcept nogil:
    free(q.bytes)
    q.n = 0
    q.bytes = NULL
    if v.p == NULL:
        return 0
    q.bytes = <uint8_t*>malloc(v.n + <size_t>1)
    if q.bytes == NULL:
        return -1
    if v.n:
        memcpy(q.bytes, v.p, v.n)
    q.n = v.n
    return 0


cdef void auth_request_answered(Broker* b, AuthRequest* q) noexcept nogil:
    if q.queued:
        auth_request_unqueue(auth_requests_of(b), q)
    wheel_remove(&b.wheel, &q.timer)
    q.is_open = 0


cdef void auth_request_end(Broker* b, AuthRequest* q) noexcept nogil:
    auth_request_answered(b, q)
    if q.message != NULL:
        message_unref(&b.messages, &b.reactor.buffers, q.message)
    if q.session != NULL:
        q.session.jobs -= 1
    if q.bytes != NULL and q.kind == ASK_AUTH:
        explicit_bzero(q.bytes, q.n)
    free(q.bytes)
    slab_give(&auth_requests_of(b).questions, q)


cdef void client_auth_request_end(Broker* b, Client* c) noexcept nogil:
    cdef AuthRequest* q
    if c.auth_request:
        q = auth_request_of(b, c.auth_request)
        c.auth_request = 0
        if q != NULL:
            auth_request_end(b, q)


cdef AuthRequest* auth_request_of(Broker* b, uint64_t handle) noexcept nogil:
    return <AuthRequest*>slab_get(&auth_requests_of(b).questions, <uint32_t>(handle >> 32), <uint32_t>handle)


cdef Client* auth_request_client(Broker* b, AuthRequest* q) noexcept nogil:
    if q.client_generation == 0:
        return NULL
    return <Client*>slab_get(&b.clients, q.client_index, q.client_generation)


cdef uint32_t auth_requests_pending(Broker* b) noexcept nogil:
    return auth_requests_of(b).questions.used


cdef uint32_t auth_requests_end(Broker* b) noexcept nogil:
    return slab_end(&auth_requests_of(b).questions)


cdef AuthRequest* auth_requests_at(Broker* b, uint32_t i) noexcept nogil:
    return <AuthRequest*>slab_at(&auth_requests_of(b).questions, i)


cdef void auth_request_unqueue(AuthRequests* a, AuthRequest* q) noexcept nogil:
    if q.prev != NULL:
        q.prev.next = q.next
    else:
        a.waiting = q.next
    if q.next != NULL:
        q.next.prev = q.prev
    else:
        a.waiting_last = q.prev
    q.prev = q.next = NULL
    q.queued = 0


cdef void auth_request_send(Broker* b, AuthRequest* q) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    q.is_open = 1
    q.epoch = b.access_epoch
    wheel_add(&b.wheel, &q.timer, b.reactor.now_ms + b.settings.auth_timeout_ms)
    b.stats.auth_requests += 1
    if a.waiting == NULL and auth_request_put(b, q):
        return
    q.queued = 1
    q.prev = a.waiting_last
    if a.waiting_last != NULL:
        a.waiting_last.next = q
    else:
        a.waiting = q
    a.waiting_last = q


cdef void auth_requests_flush(Broker* b) noexcept nogil:
    cdef AuthRequests* a = auth_requests_of(b)
    while a.waiting != NULL and auth_request_put(b, a.waiting):
        auth_request_unqueue(a, a.waiting)


# ---------------------------------------------------------------- requests as bytes

cdef inline View view_over(const void* p, uint32_t n) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>p
    v.n = n
    return v


cdef inline View view_of_text(const char* text) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>text
    v.n = 0
    if text != NULL:
        while text[v.n]:
            v.n += 1
    return v


cdef void client_facts(const Client* c, const Session* s, ClientFacts* out) noexcept nogil:
    memset(out, 0, sizeof(ClientFacts))
    out.clean_start = 2
    if s != NULL:
        out.subscriptions = s.owner.n
    if c != NULL:
        out.connection = client_handle(c)
        out.keepalive = c.keepalive_s
        out.version = c.version
        out.listener_port = c.listener.port
        out.websockets = c.listener.websockets


cdef inline void facts_add(const Client* c, const Session* s, const Security* security, AuthRequestHead* head, View* fields,
                           ClientFacts* room) noexcept nogil:
    """Append the facts about a client to the fields of a request, if native plugins may want them."""
    if security != NULL and security.native:
        client_facts(c, s, room)
        fields[head.n_fields] = view_over(room, sizeof(ClientFacts))
        head.n_fields += 1


cdef int native_access(Client* c, Session* s, NativeAccess* asked) noexcept nogil:
    cdef const Security* security = session_security(s)
    cdef int verdict
    asked.connection = client_handle(c) if c != NULL else 0
    asked.subscriptions = s.owner.n
    asked.username = s.username
    asked.facts = NULL
    verdict = (<native_access_fn>security.native_access)(security.native_realm, asked)
    return verdict if verdict != NATIVE_DESCRIBE else native_access_described(security, c, s, asked)


cdef int native_access_described(const Security* security, Client* c, Session* s, NativeAccess* asked) noexcept nogil:
    cdef ClientFacts facts
    cdef char where[ADDRESS_TEXT_MAX]
    client_facts(c, s, &facts)
    where[0] = 0
    if c != NULL:
        client_address(c, where, sizeof(where))
    asked.facts = &facts
    asked.address = where
    asked.client_id = view_over(s.client_id, s.id_len)
    return (<native_access_fn>security.native_access)(security.native_realm, asked)


cdef bint auth_request_put(Broker* b, AuthRequest* q) noexcept nogil:
    """Append an auth request to the ring as bytes. Return 0 if there is no room now. A request whose client is gone is not sent and times out."""
    cdef AuthRequestHead head
    cdef View fields[AUTH_FIELDS_MAX]
    cdef char where[ADDRESS_TEXT_MAX]
    cdef Client* c = auth_request_client(b, q)
    cdef Session* s = q.session
    cdef Security* security = NULL
    cdef ClientFacts facts
    if q.kind == ASK_CONTROL:
        return packet_resume(b, q, c)
    memset(&head, 0, sizeof(head))
    memset(fields, 0, sizeof(fields))
    head.kind = q.kind
    head.handle = auth_request_handle(q)
    if s == NULL and c != NULL:
        s = c.session
    if s != NULL and s.client != NULL:
        c = session_client(s)
    where[0] = 0
    if c != NULL:
        security = c.listener.security
        client_address(c, where, sizeof(where))
    elif s != NULL and s.security != NULL:
        security = session_security(s)
    if security != NULL:
        head.security = security.place
    if q.kind == ASK_CONNECT or q.kind == ASK_AUTH:
        return c == NULL or connect_put(b, c, q, &head, fields, where)
    if s == NULL:
        return 1
    fields[0] = view_over(s.client_id, s.id_len)
    fields[1] = view_of_text(s.username)
    fields[2] = view_of_text(where)
    fields[3] = view_over(q.bytes, q.n)
    head.a = q.access
    head.b = q.qos
    head.c = q.retain
    head.n_fields = 6 if security != NULL and security.native else 5
    if q.message != NULL and (q.kind != ASK_ACL or (security != NULL and security.each)):
        fields[4] = q.message.payload
        fields[5] = q.message.props
        if fields[4].p == NULL:
            fields[4].p = <const uint8_t*>b""
        if fields[5].p == NULL:
            fields[5].p = <const uint8_t*>b""
        head.n_fields = 6
    facts_add(c, s, security, &head, fields, &facts)
    return request_put(b, &head, fields)


cdef bint packet_resume(Broker* b, AuthRequest* q, Client* c) noexcept nogil:
    """Handle the client's packet again and report it, once there is room for its request."""
    cdef AuthRequests* a = auth_requests_of(b)
    cdef bint there
    if c == NULL or c.pending_packet == NULL:
        return 1
    pthread_mutex_lock(&a.lock)
    there = ring_room(a, q.n)
    a.starved = a.starved or not there
    pthread_mutex_unlock(&a.lock)
    if there:
        pending_packet_resume(b, c)
    return there


cdef View subscriber_id(Client* c) noexcept nogil:
    if c.session != NULL:
        return view_over(c.session.client_id, c.session.id_len)
    return view_over(c.pending_packet.id.p, c.pending_packet.id.n) if c.pending_packet != NULL else view_over(NULL, 0)


cdef bint connect_put(Broker* b, Client* c, AuthRequest* q, AuthRequestHead* head, View* fields, const char* where) noexcept nogil:
    """Append the fields of connect: id, user, password, address, method, data, then of a certificate: name, subject, PEM. Of auth: method, data,
    id, user, address."""
    cdef Frame f
    cdef Connect p
    cdef uint16_t port = c.conn.address.port
    cdef uint8_t identity_room[TLS_NAME_MAX]
    cdef uint8_t identity[IDENTITY_BYTES]
    cdef ClientFacts facts
    if q.kind == ASK_AUTH:
        fields[0] = method_of(c)
        fields[1] = view_over(q.bytes, q.n) if q.bytes != NULL else view_over(NULL, 0)
        fields[2] = subscriber_id(c)
        fields[3] = view_of_text(c.session.username) if c.session != NULL else view_over(NULL, 0)
        fields[4] = view_of_text(where)
        head.a = q.reauth
        head.n_fields = 5
        facts_add(c, c.session, c.listener.security, head, fields, &facts)
        return request_put(b, head, fields)
    if c.pending_packet == NULL or frame_next(c.pending_packet.frame, c.pending_packet.frame_n, 0, &f) != 1 or decode_connect(&f, &p) != 0:
        return 1                 # cannot happen: the packet was decoded before
    fields[0] = view_over(c.pending_packet.id.p, c.pending_packet.id.n) if c.pending_packet.id.n else p.client_id
    tls_identity(c, &p, identity_room)
    proxied_identity(c, &p)
    if p.has_username and p.username.n:
        fields[1] = p.username
    if p.has_password and p.password.n:
        fields[2] = view_over(p.password.p, p.password.n)
    fields[3] = view_of_text(where)
    if p.version == V5 and props_has(&p.props, P_AUTH_METHOD):
        fields[4] = p.props.auth_method
        if props_has(&p.props, P_AUTH_DATA):
            fields[5] = p.props.auth_data
    head.a = p.version
    head.b = <uint8_t>(port >> 8)
    head.c = <uint8_t>port
    tls_identity_fields(c, fields + 6, identity)
    head.n_fields = 9
    facts_add(c, c.session, c.listener.security, head, fields, &facts)
    facts.keepalive = p.keepalive
    facts.clean_start = p.clean_start
    facts.version = p.version
    return request_put(b, head, fields)


cdef void event_post(Broker* b, Client* c, int event, View id, View user, View detail, int clean,      # parameters: a record
                     uint64_t about) noexcept nogil:
    cdef AuthRequestHead head
    cdef View fields[4]
    cdef ClientFacts facts
    cdef Security* security = session_security(c.session)
    memset(&head, 0, sizeof(head))
    head.handle = about
    head.kind = ASK_EVENT
    head.a = <uint8_t>event
    head.security = security.place
    head.n_fields = 3
    fields[0] = id
    fields[1] = user
    fields[2] = detail
    facts_add(c, c.session, security, &head, fields, &facts)
    facts.clean_start = <uint8_t>clean
    if not request_put(b, &head, fields):
        b.stats.events_lost += 1


cdef bint bridge_event_post(Broker* b, View name, int event, View detail) noexcept nogil:
    cdef AuthRequestHead head
    cdef View fields[2]
    memset(&head, 0, sizeof(head))
    head.kind = ASK_BRIDGE
    head.a = <uint8_t>event
    head.n_fields = 2
    fields[0] = name
    fields[1] = detail
    return request_put(b, &head, fields)


cdef bint control_post(Broker* b, Client* c, View topic, View payload, View correlation) noexcept nogil:
    cdef AuthRequestHead head
    cdef View fields[7]
    cdef ClientFacts facts
    cdef char where[ADDRESS_TEXT_MAX]
    memset(&head, 0, sizeof(head))
    client_address(c, where, sizeof(where))
    head.kind = ASK_CONTROL
    head.handle = client_handle(c)
    head.security = c.listener.security.place
    head.n_fields = 6
    fields[0] = view_over(c.session.client_id, c.session.id_len)
    fields[1] = view_of_text(c.session.username)
    fields[2] = view_of_text(where)
    fields[3] = topic
    fields[4] = payload
    if fields[4].p == NULL:
        fields[4].p = <const uint8_t*>b""
    fields[5] = correlation
    facts_add(c, c.session, c.listener.security, &head, fields, &facts)
    return request_put(b, &head, fields)
