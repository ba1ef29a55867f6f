/* A plugin that does what none should. The option "what" names its mode: flood (threads of its own call everything), again (publishes in the
 * callback of a message), block (each callback blocks), churn (callbacks register and unregister callbacks), nonsense (results, and changed
 * data, that mean nothing), keep (keeps pointers and reads them later). The callbacks of frees and of exit need no mode: a topic names them. */
#include "plugin.h"
#include <limits.h>

int mosquitto_plugin_version(int n, const int *supported) { (void)n; (void)supported; return 5; }

enum { THREADS = 4, KEPT = 64 };
static const int RESULTS[] = {INT_MIN, -1000, -6, -5, -4, -3, -2, -1, 1, 5, 13, 14, 17, 32, 127, 128, 131, 135, 138, 140, 159, 200, 255, 256, 1000, 65536, INT_MAX};

static Plugin *me;
static char what[32];
static unsigned calls;
static const struct mosquitto *clients[KEPT];
static const char *names[KEPT];

static bool is(const char *mode) { return strcmp(what, mode) == 0; }

static int on_any(int event, void *data, void *userdata);

static int look(const struct mosquitto *client, void *context)
{
    const char *texts[] = {mosquitto_client_id(client), mosquitto_client_username(client), mosquitto_client_address(client)};
    for(int i = 0; i < 3; i++) *(size_t *)context += texts[i] == NULL ? 0 : strlen(texts[i]);
    return 0;
}

static void *flood(void *number)
{
    char id[40];
    size_t seen = 0;
    struct mosquitto *client;
    mosquitto_property *properties;
    for(unsigned i = 0;; i++){
        properties = NULL;
        snprintf(id, sizeof(id), "c%u", i % 40);
        client = mosquitto_client(id);
        if(client != NULL){
            look(client, &seen);
            mosquitto_set_username(client, id);
            mosquitto_set_clientid(client, id);
        }
        mosquitto_complete_basic_auth(id, i % 3 ? ERR_AUTH : 0);
        mosquitto_kick_client_by_clientid("nobody", false);
        mosquitto_apply_on_all_clients(look, &seen);
        mosquitto_property_add_string_pair(&properties, 38, "k", id);
        if(mosquitto_broker_publish_copy(NULL, "flood", 5, "hello", (int)(i % 3), i % 2, properties) != 0) mosquitto_property_free_all(&properties);
        mosquitto_callback_unregister(me, EVENT_CONNECT, on_any, NULL);
        mosquitto_callback_register(me, EVENT_CONNECT, on_any, NULL, NULL);
        mosquitto_plugin_set_info(me, id, id);
        mosquitto_log_printf(LEVEL_DEBUG, "flood of %ld, %zu", (long)(intptr_t)number, seen);
        usleep(200);
    }
    return NULL;
}

static int keep_out(int event, void *data, void *userdata) { (void)event; (void)data; (void)userdata; return 0; }

static void churn(int event)
{
    static const int EVENTS_OF[] = {EVENT_ACL_CHECK, EVENT_MESSAGE_IN, EVENT_CONNECT, EVENT_DISCONNECT, EVENT_TICK};
    for(size_t i = 0; i < sizeof(EVENTS_OF) / sizeof(EVENTS_OF[0]); i++){
        mosquitto_callback_unregister(me, EVENTS_OF[i], on_any, NULL);
        if((calls + i) % 3 || EVENTS_OF[i] == event) mosquitto_callback_register(me, EVENTS_OF[i], on_any, NULL, NULL);
        mosquitto_callback_register(me, EVENTS_OF[i], on_any, NULL, NULL);
        mosquitto_callback_unregister(me, EVENTS_OF[i], keep_out, NULL);
    }
}

/* Reads what earlier calls have shown: a client is valid for 30 s after its end. */
static void keep(const struct mosquitto *client)
{
    size_t seen = 0;
    clients[calls % KEPT] = client;
    names[calls % KEPT] = mosquitto_client_id(client);
    for(int i = 0; i < KEPT; i++){
        if(clients[i] != NULL) look(clients[i], &seen);
        seen += names[i] == NULL ? 0 : strlen(names[i]);
    }
}

static int change(struct mosquitto_evt_message *d)
{
    char *big;
    mosquitto_property *properties = NULL;
    switch(calls % 9){
        case 0: d->topic = strdup("a/+/#"); break;
        case 1: d->topic = strdup(""); break;
        case 2: d->topic = NULL; break;
        case 3: d->topic = malloc(70001); memset(d->topic, 'a', 70000); d->topic[70000] = 0; break;
        case 4: d->payload = NULL; d->payloadlen = UINT32_MAX; break;
        case 5: d->qos = 255; d->retain = true; break;
        case 6: d->topic = strdup("$share/g/x"); break;
        case 7: mosquitto_property_free_all(&d->properties); d->properties = properties; break;
        default:
            big = malloc(65536);
            memset(big, 'b', 65535);
            big[65535] = 0;
            for(int i = 0; i < 20; i++) mosquitto_property_add_string_pair(&d->properties, 38, big, big);
            free(big);
    }
    d->reason_code = 255;
    d->reason_string = strdup("\xff");
    return 0;
}

static int nonsense(int event, void *data)
{
    struct mosquitto_evt_subscribe *s = data;
    struct mosquitto_evt_extended_auth *x = data;
    static const char *const FILTERS[] = {"a#/b", "", NULL, "$share//x", "x\xff", "#", "+/+/#"};
    int result = RESULTS[calls % (sizeof(RESULTS) / sizeof(RESULTS[0]))];
    if(event == EVENT_MESSAGE_IN || event == EVENT_MESSAGE_OUT) return calls % 2 ? result : change(data);
    if((event == EVENT_SUBSCRIBE || event == EVENT_UNSUBSCRIBE) && calls % 4){
        s->data.options = (uint8_t)calls;
        s->data.topic_filter = (char *)FILTERS[calls % 7];
        if(s->data.topic_filter != NULL) s->data.topic_filter = strdup(s->data.topic_filter);
        return 0;
    }
    if(event == EVENT_EXT_AUTH_START || event == EVENT_EXT_AUTH_CONTINUE){
        x->data_out = calls % 2 ? NULL : malloc(65535);
        x->data_out_len = 65535;
        if(x->data_out != NULL) memset(x->data_out, 1, 65535);
    }
    return event == EVENT_CONNECT || calls % 3 ? 0 : result;
}

static int on_any(int event, void *data, void *userdata)
{
    struct mosquitto_evt_message *m = data;
    struct mosquitto_evt_basic_auth *login = data;
    (void)userdata;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if(event == EVENT_TICK) return 0;
    if(event == EVENT_MESSAGE_IN && !strcmp(m->topic, "free/topic")) free(m->topic);
    if(event == EVENT_MESSAGE_IN && !strcmp(m->topic, "free/payload")) free(m->payload);
    if(event == EVENT_MESSAGE_IN && !strcmp(m->topic, "thread/exit")) pthread_exit(NULL);
    if(event == EVENT_BASIC_AUTH && !strcmp(shown(login->username), "free")) free(login->username);
    if(is("again") && (event == EVENT_MESSAGE_IN || event == EVENT_MESSAGE_OUT)){
        mosquitto_broker_publish_copy(NULL, m->topic, (int)m->payloadlen, m->payload, m->qos, false, NULL);
        mosquitto_broker_publish_copy(mosquitto_client_id(m->client), m->topic, (int)m->payloadlen, m->payload, m->qos, false, NULL);
    }
    if(is("block") && (event != EVENT_BASIC_AUTH || !strcmp(shown(login->username), "slow"))) sleep(60);
    if(is("churn")) churn(event);
    if(is("keep")) keep(m->client);
    return is("nonsense") ? nonsense(event, data) : 0;
}

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    static const struct { char letter; int event; } EVENTS_OF[] = {
        {'b', EVENT_BASIC_AUTH}, {'a', EVENT_ACL_CHECK}, {'i', EVENT_MESSAGE_IN}, {'o', EVENT_MESSAGE_OUT}, {'s', EVENT_SUBSCRIBE}, {'s', EVENT_UNSUBSCRIBE},
        {'c', EVENT_CONNECT}, {'c', EVENT_DISCONNECT}, {'c', EVENT_CLIENT_OFFLINE}, {'t', EVENT_TICK}, {'x', EVENT_EXT_AUTH_START}, {'x', EVENT_EXT_AUTH_CONTINUE},
    };
    const char *events = "";
    pthread_t thread;
    (void)userdata;
    me = identifier;
    for(int i = 0; i < n; i++){
        if(!strcmp(options[i].key, "what")) snprintf(what, sizeof(what), "%s", options[i].value);
        if(!strcmp(options[i].key, "events")) events = options[i].value;
    }
    for(size_t i = 0; i < sizeof(EVENTS_OF) / sizeof(EVENTS_OF[0]); i++){
        if(strchr(events, EVENTS_OF[i].letter) != NULL) mosquitto_callback_register(me, EVENTS_OF[i].event, on_any, NULL, NULL);
    }
    for(intptr_t i = 0; i < THREADS && is("flood"); i++) pthread_create(&thread, NULL, flood, (void *)i);
    return 0;
}
