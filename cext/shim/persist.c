/* What persistence plugins keep: the events that report changes of the broker's state, and the functions by which a plugin restores it.
 *
 *   mosq_shim_persist(plugin, event, stored) -> the event's struct -> callbacks
 *   mosq_shim_restore(plugin, taker) -> PERSIST_RESTORE -> mosquitto_persist_client_add ... -> taker(event, stored)
 *
 * Knows layouts and ownership, not what is in the broker's store. The functions work only while the plugin restores, in that thread.
 */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- events */

static int about_client(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_client e;
    memset(&e, 0, sizeof(e));
    e.data.clientid = (char *)s->client_id;
    e.data.username = (char *)s->username;
    e.data.will_delay_time = (time_t)s->will_due_s;
    e.data.session_expiry_time = (time_t)s->ends_s;
    e.data.will_delay_interval = s->will_delay_s;
    e.data.session_expiry_interval = s->expiry_s;
    e.data.max_packet_size = s->packet_max;
    e.data.listener_port = s->port;
    e.data.max_qos = s->qos;
    e.data.retain_available = s->retain;
    return plugin_notify(p, event, &e);
}

static int about_subscription(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_subscription e;
    memset(&e, 0, sizeof(e));
    e.data.clientid = (char *)s->client_id;
    e.data.topic_filter = (char *)s->topic;
    e.data.identifier = s->identifier;
    e.data.options = s->options;
    return plugin_notify(p, event, &e);
}

static int about_client_msg(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_client_msg e;
    memset(&e, 0, sizeof(e));
    e.data.clientid = s->client_id;
    e.data.cmsg_id = s->cmsg_id;
    e.data.store_id = s->store_id;
    e.data.subscription_identifier = s->identifier;
    e.data.mid = s->pid;
    e.data.qos = s->qos;
    e.data.retain = s->retain;
    e.data.dup = s->dup;
    e.data.direction = s->direction;
    e.data.state = s->state;
    return plugin_notify(p, event, &e);
}

static int about_base_msg(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_base_msg e;
    int result;
    memset(&e, 0, sizeof(e));
    e.data.store_id = s->store_id;
    e.data.expiry_time = s->ends_s;
    e.data.topic = (char *)s->topic;
    e.data.payload = s->data_n ? (void *)s->data : NULL;
    e.data.payloadlen = s->data_n;
    e.data.source_id = (char *)s->client_id;
    e.data.source_username = (char *)s->username;
    e.data.source_mid = s->pid;
    e.data.source_port = s->port;
    e.data.qos = s->qos;
    e.data.retain = s->retain;
    e.data.properties = s->properties_n ? properties_read(s->properties, s->properties_n) : NULL;
    result = plugin_notify(p, event, &e);
    mosquitto_property_free_all(&e.data.properties);
    return result;
}

static int about_retained(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_retain_msg e;
    memset(&e, 0, sizeof(e));
    e.topic = s->topic;
    e.store_id = s->store_id;
    return plugin_notify(p, event, &e);
}

static int about_will(Plugin *p, int event, const Stored *s)
{
    struct mosquitto_evt_persist_will_msg e;
    int result;
    memset(&e, 0, sizeof(e));
    e.data.clientid = s->client_id;
    e.data.topic = (char *)s->topic;
    e.data.payload = s->data_n ? (void *)s->data : NULL;
    e.data.payloadlen = s->data_n;
    e.data.qos = s->qos;
    e.data.retain = s->retain;
    e.data.properties = s->properties_n ? properties_read(s->properties, s->properties_n) : NULL;
    result = plugin_notify(p, event, &e);
    mosquitto_property_free_all(&e.data.properties);
    return result;
}

/* Reports one change to a plugin. Returns its result. */
EXPORT int mosq_shim_persist(Plugin *p, int event, const Stored *stored)
{
    switch(event){
        case EVENT_BASE_MSG_ADD:
        case EVENT_BASE_MSG_DELETE: return about_base_msg(p, event, stored);
        case EVENT_RETAIN_SET:
        case EVENT_RETAIN_DELETE: return about_retained(p, event, stored);
        case EVENT_CLIENT_ADD:
        case EVENT_CLIENT_DELETE:
        case EVENT_CLIENT_UPDATE: return about_client(p, event, stored);
        case EVENT_SUBSCRIPTION_ADD:
        case EVENT_SUBSCRIPTION_DELETE: return about_subscription(p, event, stored);
        case EVENT_CLIENT_MSG_ADD:
        case EVENT_CLIENT_MSG_DELETE:
        case EVENT_CLIENT_MSG_UPDATE: return about_client_msg(p, event, stored);
        case EVENT_WILL_ADD:
        case EVENT_WILL_DELETE: return about_will(p, event, stored);
        default: return ERR_INVAL;
    }
}

/* ---------------------------------------------------------------- restoring */

static __thread Taker taker;

bool restoring(void) { return taker != NULL; }

/* Lets a plugin restore what it has kept. Returns its result. */
EXPORT int mosq_shim_restore(Plugin *p, Taker take)
{
    struct mosquitto_evt_persist_restore e;
    int result;
    memset(&e, 0, sizeof(e));
    taker = take;
    result = plugin_notify(p, EVENT_RESTORE, &e);
    taker = NULL;
    return result;
}

static int taken(const char *function, int event, const Stored *stored)
{
    static Seldom seldom;
    if(taker != NULL) return taker(event, stored);
    line_seldom(&seldom, LEVEL_WARNING, "Warning: A plugin calls %s outside of 'persist-restore' events, which mosq does not support", function);
    return ERR_NOT_SUPPORTED;
}

#define TAKEN(event, stored) taken(__func__, (event), (stored))

static Stored of_client(const struct mosquitto_client *c)
{
    Stored s;
    memset(&s, 0, sizeof(s));
    s.client_id = c->clientid;
    s.username = c->username;
    s.will_due_s = c->will_delay_time;
    s.ends_s = c->session_expiry_time;
    s.will_delay_s = c->will_delay_interval;
    s.expiry_s = c->session_expiry_interval;
    s.packet_max = c->max_packet_size;
    s.port = c->listener_port;
    s.qos = c->max_qos;
    s.retain = c->retain_available;
    return s;
}

/* The broker owns the strings, also after an error, as in Mosquitto. */
EXPORT int mosquitto_persist_client_add(struct mosquitto_client *c)
{
    Stored s;
    int result = ERR_INVAL;
    if(c == NULL) return ERR_INVAL;
    s = of_client(c);
    if(s.client_id != NULL) result = TAKEN(EVENT_CLIENT_ADD, &s);
    free(c->clientid);
    free(c->username);
    free(c->auth_method);
    c->clientid = c->username = c->auth_method = NULL;
    return result;
}

/* The broker owns the user name. */
EXPORT int mosquitto_persist_client_update(struct mosquitto_client *c)
{
    Stored s;
    int result = ERR_INVAL;
    if(c == NULL) return ERR_INVAL;
    s = of_client(c);
    if(s.client_id != NULL) result = TAKEN(EVENT_CLIENT_UPDATE, &s);
    free(c->username);
    c->username = NULL;
    return result;
}

static int by_name(const char *function, int event, const char *client_id, const char *topic, uint64_t store_id)
{
    Stored s;
    memset(&s, 0, sizeof(s));
    s.client_id = client_id;
    s.topic = topic;
    s.store_id = store_id;
    return taken(function, event, &s);
}

EXPORT int mosquitto_persist_client_delete(const char *id)
{
    return id == NULL ? ERR_INVAL : by_name(__func__, EVENT_CLIENT_DELETE, id, NULL, 0);
}

static int client_msg(const char *function, int event, const struct mosquitto_client_msg *m)
{
    Stored s;
    if(m == NULL || m->clientid == NULL || m->direction > DIRECTION_ALL) return ERR_INVAL;
    memset(&s, 0, sizeof(s));
    s.client_id = m->clientid;
    s.cmsg_id = m->cmsg_id;
    s.store_id = m->store_id;
    s.identifier = m->subscription_identifier;
    s.pid = m->mid;
    s.qos = m->qos;
    s.retain = m->retain;
    s.dup = m->dup;
    s.direction = m->direction;
    s.state = m->state;
    return taken(function, event, &s);
}

EXPORT int mosquitto_persist_client_msg_add(struct mosquitto_client_msg *m) { return client_msg(__func__, EVENT_CLIENT_MSG_ADD, m); }
EXPORT int mosquitto_persist_client_msg_delete(struct mosquitto_client_msg *m) { return client_msg(__func__, EVENT_CLIENT_MSG_DELETE, m); }
EXPORT int mosquitto_persist_client_msg_update(struct mosquitto_client_msg *m) { return client_msg(__func__, EVENT_CLIENT_MSG_UPDATE, m); }

EXPORT int mosquitto_persist_client_msg_clear(struct mosquitto_client_msg *m) { return client_msg(__func__, CLIENT_MSG_CLEAR, m); }

/* The broker owns topic, payload and properties. */
EXPORT int mosquitto_persist_base_msg_add(struct mosquitto_base_msg *m)
{
    Stored s;
    uint8_t *properties = NULL;
    int result = ERR_INVAL;
    if(m == NULL) return ERR_INVAL;
    memset(&s, 0, sizeof(s));
    s.store_id = m->store_id;
    s.ends_s = m->expiry_time;
    s.topic = m->topic;
    s.data = m->payload;
    s.data_n = m->payload == NULL ? 0 : m->payloadlen;
    s.client_id = m->source_id;
    s.username = m->source_username;
    s.pid = m->source_mid;
    s.port = m->source_port;
    s.qos = m->qos;
    s.retain = m->retain;
    if(properties_write(m->properties, &properties, &s.properties_n, NULL) != 0) result = ERR_NOMEM;
    s.properties = properties;
    if(result != ERR_NOMEM && s.topic != NULL && (m->payload != NULL || m->payloadlen == 0)) result = TAKEN(EVENT_BASE_MSG_ADD, &s);
    free(properties);
    free(m->topic);
    free(m->payload);
    mosquitto_property_free_all(&m->properties);
    m->topic = NULL;
    m->payload = NULL;
    return result;
}

EXPORT int mosquitto_persist_base_msg_delete(uint64_t id) { return by_name(__func__, EVENT_BASE_MSG_DELETE, NULL, NULL, id); }

EXPORT int mosquitto_persist_retain_msg_set(const char *topic, uint64_t id)
{
    return topic == NULL ? ERR_INVAL : by_name(__func__, EVENT_RETAIN_SET, NULL, topic, id);
}

EXPORT int mosquitto_persist_retain_msg_delete(const char *topic)
{
    return topic == NULL ? ERR_INVAL : by_name(__func__, EVENT_RETAIN_DELETE, NULL, topic, 0);
}

EXPORT int mosquitto_subscription_add(const struct mosquitto_subscription *sub)
{
    Stored s;
    if(sub == NULL || sub->clientid == NULL || !sub->clientid[0] || sub->topic_filter == NULL || !sub->topic_filter[0]) return ERR_INVAL;
    memset(&s, 0, sizeof(s));
    s.client_id = sub->clientid;
    s.topic = sub->topic_filter;
    s.options = sub->options;
    s.identifier = sub->identifier;
    return TAKEN(EVENT_SUBSCRIPTION_ADD, &s);
}

EXPORT int mosquitto_subscription_delete(const char *id, const char *filter)
{
    if(id == NULL || !id[0] || filter == NULL || !filter[0]) return ERR_INVAL;
    return by_name(__func__, EVENT_SUBSCRIPTION_DELETE, id, filter, 0);
}

/* The broker owns the properties after success. */
EXPORT int mosquitto_client_will_set(const char *id, const char *topic, int n, const void *payload, int qos, bool retain, mosquitto_property *properties)
{
    Stored s;
    uint8_t *bytes = NULL;
    int result;
    if(id == NULL || topic == NULL || n < 0 || (n > 0 && payload == NULL) || qos < 0 || qos > 2) return ERR_INVAL;
    memset(&s, 0, sizeof(s));
    s.client_id = id;
    s.topic = topic;
    s.data = payload;
    s.data_n = (uint32_t)n;
    s.qos = (uint8_t)qos;
    s.retain = retain;
    if(properties_write(properties, &bytes, &s.properties_n, NULL) != 0) return ERR_NOMEM;
    s.properties = bytes;
    result = TAKEN(EVENT_WILL_ADD, &s);
    free(bytes);
    if(result == ERR_SUCCESS) mosquitto_property_free_all(&properties);
    return result;
}
