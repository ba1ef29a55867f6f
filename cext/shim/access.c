/* Access to a message, asked of plugins with `plugin_thread loop`: the only call of plugins that is made for each message.
 *
 *   native_access (auth_requests.pyx) -> mosq_shim_access -> callbacks -> the verdict
 *
 * Invariants: callbacks get topic and payload with a zero behind them, as in Mosquitto, where many plugins take a payload for a string.
 * Cost: one lock, of the plugin, and a copy of the topic and the payload on the stack if they are small.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <stdlib.h>
#include <string.h>

/* NativeAccess of auth_requests.pxd */
typedef struct {
    uint64_t connection;        /* 0: the client is not connected */
    uint32_t subscriptions;
    uint8_t access, qos, retain, unused;
    const char *username;
    View topic, payload, properties;
    const Facts *facts;         /* NULL: the client is not described. The rest holds only with it */
    const char *address;
    View client_id;
} Asked;

enum { DENIED = 0, ALLOWED = 1, BY_RULES = -1, ASK_OTHERS = -2, DESCRIBE_CLIENT = -3, STACK_BYTES = 4096 };

int access_bytes(void) { return (int)sizeof(Asked); }

/* Copies up to 64 bytes without a call: two loads that overlap for each size. */
static inline void copy_text(char *to, const uint8_t *from, size_t n)
{
    if(n > 64){
        memcpy(to, from, n);
    }else if(n > 32){
        memcpy(to, from, 32);
        memcpy(to + n - 32, from + n - 32, 32);
    }else if(n > 16){
        memcpy(to, from, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    }else if(n >= 8){
        memcpy(to, from, 8);
        memcpy(to + n - 8, from + n - 8, 8);
    }else{
        for(size_t i = 0; i < n; i++) to[i] = (char)from[i];
    }
}

static inline char *put_text(char **p, View v)
{
    char *text = *p;
    copy_text(text, v.p, v.n);
    text[v.n] = 0;
    *p += v.n + (size_t)1;
    return text;
}

static bool same_text(const char *a, const char *b) { return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0); }

/* Field by field: for a struct of this size, gcc -O2 emits instructions that take longer than the rest of a check. */
static inline void event_copy(struct mosquitto_evt_acl_check *to, const struct mosquitto_evt_acl_check *from)
{
    to->future = NULL;
    to->client = from->client;
    to->topic = from->topic;
    to->payload = from->payload;
    to->properties = from->properties;
    to->access = from->access;
    to->payloadlen = from->payloadlen;
    to->qos = from->qos;
    to->retain = from->retain;
    for(int i = 0; i < 4; i++) to->future2[i] = NULL;
}

static inline int asked_of(Plugin *p, const struct mosquitto_evt_acl_check *asked)
{
    struct mosquitto_evt_acl_check data;
    int result = ERR_PLUGIN_IGNORE;
    FOR_EACH(p, EVENT_ACL_CHECK){
        event_copy(&data, asked);       /* a callback may change it */
        result = decided(result, one->call(EVENT_ACL_CHECK, &data, one->userdata));
        if(!undecided(result)) break;
    }
    return result;
}

int access_asked(Plugin *p, const struct mosquitto_evt_acl_check *asked) { return asked_of(p, asked); }

/* What plugin_call does, as far as this event needs it. */
static int plugin_access(Plugin *p, const struct mosquitto_evt_acl_check *asked)
{
    int result = ERR_PLUGIN_DEFER;
    Within was;
    pthread_mutex_lock(&p->lock);
    if(p->running){
        was = within_begin(p, EVENT_ACL_CHECK);
        result = asked_of(p, asked);
        walk_end(p);
        within_end(was);
    }
    pthread_mutex_unlock(&p->lock);
    return result;
}

static int ask(Realm *realm, const struct mosquitto_evt_acl_check *event)
{
    int result = ERR_PLUGIN_IGNORE;
    for(int i = 0; i < realm->n && undecided(result); i++){
        if(plugin_wants(realm->plugins[i], EVENT_ACL_CHECK)) result = decided(result, plugin_access(realm->plugins[i], event));
    }
    if(!undecided(result)) return result == ERR_SUCCESS ? ALLOWED : DENIED;
    if(realm->undecided == 0) return ASK_OTHERS;
    return result == ERR_PLUGIN_DEFER ? BY_RULES : realm->undecided;
}

/* Asks about a client that the loop does not remember: its description is taken over. */
static int ask_new(Realm *realm, const Asked *asked, const char *client_id, struct mosquitto_evt_acl_check *event)
{
    Call call;
    int verdict;
    memset(&call, 0, sizeof(call));
    call.client_id = client_id;
    call.username = asked->username;
    call.address = asked->address;
    call.facts = *asked->facts;
    event->client = client_pin(&call, EVENT_ACL_CHECK);
    if(event->client == NULL) return DENIED;
    client_remember(event->client);
    verdict = ask(realm, event);
    client_unpin(event->client, EVENT_ACL_CHECK, ERR_SUCCESS);
    return verdict;
}

/* Returns a verdict; ASK_OTHERS: the control plane asks plugins of other kinds. DESCRIBE_CLIENT: the caller adds the rest and calls again. */
EXPORT int mosq_shim_access(Realm *realm, const Asked *asked)
{
    char room[STACK_BYTES], *heap = NULL, *p = room;
    size_t need = (size_t)asked->topic.n + asked->payload.n + 2 + (asked->facts == NULL ? 0 : asked->client_id.n + (size_t)1);
    struct mosquitto_evt_acl_check event;
    Recent *place = recent_of(asked->connection);
    struct mosquitto *client = place->connection == asked->connection ? __atomic_load_n(&place->client, __ATOMIC_RELAXED) : NULL;
    int verdict;
    if(client != NULL && !same_text(client->username, asked->username)) client = NULL;      /* a plugin has changed it */
    if(client == NULL && asked->facts == NULL) return DESCRIBE_CLIENT;
    if(need > sizeof(room) && (p = heap = malloc(need)) == NULL) return DENIED;
    event.client = client;              /* without the fields that event_copy sets */
    event.topic = put_text(&p, asked->topic);
    event.payload = asked->payload.n ? put_text(&p, asked->payload) : NULL;
    event.payloadlen = asked->payload.n;
    event.properties = asked->properties.n ? properties_read(asked->properties.p, asked->properties.n) : NULL;
    event.access = asked->access;
    event.qos = asked->qos;
    event.retain = asked->retain;
    if(asked->properties.n && event.properties == NULL){
        verdict = DENIED;               /* no memory */
    }else if(client != NULL){
        client->facts.subscriptions = asked->subscriptions;
        verdict = ask(realm, &event);
    }else{
        verdict = ask_new(realm, asked, put_text(&p, asked->client_id), &event);
    }
    if(event.properties != NULL) mosquitto_property_free_all(&event.properties);
    if(heap != NULL) free(heap);
    return verdict;
}
