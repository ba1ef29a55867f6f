# Clients of MQTT as a model: they connect, subscribe, publish, send again after a reconnect, and leave wills. Each notes what came to it;
# a violation of an order or of "exactly once" is found at once, a loss in the end (link_check.pyx).
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset
from cext.testing.link_broker cimport (
    ANSWER_BLOCKED, ANSWER_REFUSED, deliver_next, on_connect, on_gone, on_publish, on_pubrel, on_subscribe, on_unsubscribe, topic_matches,
)
from cext.testing.link_world cimport (
    FILTERS, GROUPS_FROM, KIND_GROUP, KIND_RETAINED, MESSAGES, PAYLOAD_MAX, Sending, Sent, SimClient, TOPICS, WILL,
    Worker, World, chance, fail, note,
)


cdef bint reply_lost(World* g, uint32_t c) noexcept nogil:
    # The connection breaks before the client reads this.
    if g.quiet or chance(g, 100) >= g.rate[5]:
        return 0
    note(g, b"client %lld loses its connection with a reply", c, 0, 0)
    client_lost(g, c)
    on_gone(&g.worker[g.client[c].home], c, 0)
    return 1


cdef void client_lost(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef uint32_t i
    if not k.connected and not k.connecting:
        return
    if k.has_will and k.connected and g.worker[k.home].stored:
        g.sent[k.will].acked = 1            # CONNACK promised it; without a store it ends with its worker
        g.sent[k.will].acked_at = g.step
    if k.has_will:
        g.sent[k.will].at = g.step
    k.has_will = 0
    k.connected = k.connecting = 0
    k.epoch += 1
    for i in range(WILL):
        if not k.durable:
            k.sending[i].message = 0        # it begins again without them
        k.sending[i].pending = 1
    for i in range(FILTERS):
        if not k.durable or k.sub[i] == 1:
            k.sub[i] = 0 if not k.durable else 3


cdef void client_connack(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    if not k.connecting or reply_lost(g, c):
        return
    k.connected, k.connecting = 1, 0
    if not k.durable:
        k.seen = 0


cdef void client_puback(World* g, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil:
    cdef Sending* s = &g.client[c].sending[pid]
    if pid == WILL or reply_lost(g, c) or message == 0 or s.message != message:
        return
    note(g, b"client %lld: message %lld is acknowledged", c, message, 0)
    g.sent[message].acked, g.sent[message].acked_at = 1, g.step
    s.message = 0


cdef void client_pubrec(World* g, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil:
    cdef Sending* s = &g.client[c].sending[pid]
    if reply_lost(g, c) or s.message != message or s.stage != 1:
        return
    s.stage, s.pending = 2, 1


cdef void client_suback(World* g, uint32_t c, uint32_t filter) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    if reply_lost(g, c) or k.sub[filter] != 1:
        return
    note(g, b"client %lld: SUBACK of filter %lld", c, filter, 0)
    k.sub[filter], k.sub_at[filter] = 2, g.step


cdef bint subscribed_before(const SimClient* k, const Sent* m) noexcept nogil:
    # Return whether a subscription, if possible without losses, was acknowledged before the first PUBLISH of the message.
    cdef uint32_t f
    for f in range(GROUPS_FROM):
        if k.sub[f] == 2 and (k.sub_qos[f] or m.qos == 0) and k.sub_at[f] < m.at and topic_matches(f, m.topic):
            return 1
    return 0


cdef void client_message(World* g, uint32_t c, uint16_t message, int kind, int qos, uint32_t seq) noexcept nogil:  # parameters: the fields of a packet
    cdef SimClient* k = &g.client[c]
    cdef Sent* m = &g.sent[message]
    cdef uint16_t* last = &k.last[m.publisher][m.topic][m.qos]
    g.moved += 1
    if seq and seq <= k.seen:
        return                              # the same delivery again: the client knows its packet id
    if seq:
        k.seen = seq
    note(g, b"client %lld gets message %lld, kind %lld", c, message, kind)
    if kind == KIND_RETAINED:
        k.retained[message] += 1
        return
    if kind >= KIND_GROUP:
        # a session that ends with its connection may take a copy with it: the message then goes to another member
        m.group_copies[kind - KIND_GROUP] += 1 if k.durable and qos else 0
        if m.qos == 2 and qos and m.group_copies[kind - KIND_GROUP] > 1:
            fail(g, b"message %lld of QoS 2 came twice to group %lld", message, kind - KIND_GROUP, 0)
        return
    k.live[message] += 1
    k.sure[message] += 1 if qos else 0
    if m.qos == 2 and k.sure[message] > 1:
        fail(g, b"message %lld of QoS 2 came twice to client %lld", message, c, 0)
    if m.qos == 1 and k.sure[message] > m.sends:
        fail(g, b"message %lld came more often to client %lld than its %lld times of sending", message, c, m.sends)
    # a subscription of QoS 0 may miss the first copy of a message of QoS 1, and get the one that its publisher sends again
    if k.live[message] == 1 and m.order and (qos or m.qos == 0) and subscribed_before(k, m):
        if message < last[0]:
            fail(g, b"message %lld came to client %lld behind message %lld", message, c, last[0])
        last[0] = message


# ---------------------------------------------------------------- what a client does

cdef uint16_t message_new(World* g, uint32_t c, int qos) noexcept nogil:
    cdef Sent* m
    if g.messages + 1 >= MESSAGES:
        return 0
    g.messages += 1
    m = &g.sent[g.messages]
    memset(m, 0, sizeof(Sent))
    m.publisher, m.qos, m.topic = <uint8_t>c, <uint8_t>qos, <uint8_t>chance(g, TOPICS)
    m.retain = chance(g, 100) < g.rate[6]
    m.clear = m.retain and chance(g, 4) == 0
    m.bytes = <uint8_t>(1 + chance(g, PAYLOAD_MAX))
    m.order = 1
    return <uint16_t>g.messages


cdef void connect(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef Worker* w = &g.worker[k.home]
    cdef uint16_t will = 0
    if not w.ready or w.frozen or w.live.sessions[c].inbox[WILL].message:
        return                              # an earlier will is being published
    if not g.quiet and chance(g, 100) < g.rate[7]:
        will = message_new(g, c, 2)
        g.sent[will].order = 0
    k.connecting, k.has_will, k.will = 1, will != 0, will
    note(g, b"client %lld connects, will %lld", c, will, 0)
    if not k.durable:
        memset(k.last, 0, sizeof(k.last))
        memset(k.sure, 0, sizeof(k.sure))       # a new session
    on_connect(w, c, will)


cdef void subscribe(World* g, uint32_t c, uint32_t filter) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    if k.sub[filter] == 2 or k.sub[filter] == 1:
        return
    if k.sub[filter] == 0:
        k.sub_qos[filter] = <uint8_t>(chance(g, 5) % 3) if chance(g, 3) else 2
    k.sub[filter] = 1
    note(g, b"client %lld subscribes to filter %lld with QoS %lld", c, filter, k.sub_qos[filter])
    on_subscribe(&g.worker[k.home], c, filter, k.sub_qos[filter])


cdef void unsubscribe(World* g, uint32_t c, uint32_t filter) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    if k.sub[filter] != 2:
        return
    k.sub[filter] = 0
    note(g, b"client %lld unsubscribes from filter %lld", c, filter, 0)
    on_unsubscribe(&g.worker[k.home], c, filter)


cdef void publish(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef uint32_t i
    cdef int qos = <int>(chance(g, 7) + 1) // 3          # 0, 1, 1, 1, 2, 2, 2
    cdef uint16_t m
    for i in range(WILL):
        if k.sending[i].message == 0:
            m = message_new(g, c, qos)
            if m == 0:
                return
            g.order += 1
            k.sending[i].message, k.sending[i].stage, k.sending[i].pending, k.sending[i].order = m, 1, 1, g.order
            send_oldest(g, c)
            return


cdef bint send_oldest(World* g, uint32_t c) noexcept nogil:
    # Send the oldest packet that waits. Return whether there was one and the worker read it.
    cdef SimClient* k = &g.client[c]
    cdef Worker* w = &g.worker[k.home]
    cdef Sending* s
    cdef int best = -1
    cdef int answer
    cdef uint32_t i
    for i in range(WILL):
        if k.sending[i].message and k.sending[i].pending and (best < 0 or k.sending[i].order < k.sending[best].order):
            best = <int>i
    if best < 0:
        return 0
    s = &k.sending[best]
    note(g, b"client %lld sends message %lld, stage %lld", c, s.message, s.stage)
    if s.stage == 1 and g.sent[s.message].at == 0:
        g.sent[s.message].at = g.step
    s.pending = 0
    i = s.message
    answer = on_publish(w, c, best, s.message) if s.stage == 1 else on_pubrel(w, c, best)
    if answer == ANSWER_BLOCKED or (answer == ANSWER_REFUSED and k.version == 3):
        note(g, b"client %lld is not read", c, 0, 0)
        s.pending = 1
        return 0
    if answer == ANSWER_REFUSED or g.sent[i].qos == 0:
        note(g, b"client %lld is done with message %lld without an acknowledgement", c, i, 0)
        if s.message == i:
            s.message = 0
    return 1


cdef void leave(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef bint clean = chance(g, 2)
    note(g, b"client %lld leaves, cleanly: %lld", c, clean, 0)
    if clean:
        k.has_will = 0
    client_lost(g, c)
    on_gone(&g.worker[k.home], c, clean)


cdef void client_act(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef uint32_t what = chance(g, 100)
    cdef uint32_t filter = chance(g, FILTERS)
    if g.worker[k.home].frozen or not g.worker[k.home].alive:
        return
    if not k.connected:
        if not k.connecting:
            connect(g, c)
    elif what < 25:
        subscribe(g, c, filter)
    elif what < <uint32_t>25 + g.rate[9]:
        unsubscribe(g, c, filter if chance(g, 2) else GROUPS_FROM + filter % (FILTERS - GROUPS_FROM))
    elif what < <uint32_t>25 + g.rate[9] + g.rate[4]:
        leave(g, c)
    elif what < 70:
        publish(g, c)
    elif what < 85:
        send_oldest(g, c)
    else:
        deliver_next(&g.worker[k.home], c)


cdef void client_settle(World* g, uint32_t c) noexcept nogil:
    cdef SimClient* k = &g.client[c]
    cdef uint32_t f
    if not k.connected:
        if not k.connecting:
            connect(g, c)
        return
    for f in range(FILTERS):
        if k.sub[f] == 3:                   # SUBSCRIBE had no answer
            subscribe(g, c, f)
    while send_oldest(g, c):
        g.moved += 1
    while deliver_next(&g.worker[k.home], c):
        pass
