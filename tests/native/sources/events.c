/* A plugin of version 5 with all events. Names of users, clients and topics say what it does. */
#include "plugin.h"

static Plugin *me;
static char *late_id;
static int ticks;
static const char *first_option;
static char gate[200];

static void wait_for(const char *file)
{
    while(access(file, F_OK) != 0) usleep(10000);
}

/* Keeps the plugin's thread for as long as the topic says; with gate/, until the file of the option `gate` is there. */
static void take_time(const char *topic)
{
    if(!strncmp(topic, "slow/", 5)) usleep(1000);
    if(strncmp(topic, "hold/", 5) && strncmp(topic, "gate/", 5)) return;
    mosquitto_log_printf(LEVEL_INFO, "busy with %s", topic);
    if(topic[0] == 'g') wait_for(gate);
    else sleep(3);
}

static int on_basic_auth(int event, void *data, void *userdata)
{
    struct mosquitto_evt_basic_auth *d = data;
    const char *name = shown(d->username), *id = mosquitto_client_id(d->client);
    (void)event;
    if(userdata != (void *)&ticks) abort();
    mosquitto_log_printf(LEVEL_INFO, "login %s as %s from %s keepalive %d version %d clean %d port %d protocol %d", id, name,
                         mosquitto_client_address(d->client), mosquitto_client_keepalive(d->client), mosquitto_client_protocol_version(d->client),
                         mosquitto_client_clean_session(d->client), mosquitto_client_port(d->client) != 0, mosquitto_client_protocol(d->client));
    if(!strcmp(name, "deny")) return ERR_AUTH;
    if(!strcmp(name, "banned")) return 138;
    if(!strcmp(name, "defer")) return ERR_PLUGIN_DEFER;
    if(!strcmp(name, "ignore")) return ERR_PLUGIN_IGNORE;
    while(!strcmp(name, "block")) pause();
    if(!strcmp(name, "slow")) sleep(1);
    if(!strcmp(name, "gated")) take_time("gate/login");
    if(!strcmp(name, "alias")) return mosquitto_set_username(d->client, "ann");
    if(!strcmp(name, "crash")) *(volatile int *)0 = 1;
    if(!strcmp(name, "exit")) exit(0);
    if(!strcmp(name, "many")){              /* names: the last one is refused */
        char text[80];
        for(int i = 0; i < 100000; i++){
            snprintf(text, sizeof(text), "%s-%064d", i % 2 ? "a" : "b", i % 8 < 6 || i > 1000 ? 0 : i);
            if(mosquitto_set_username(d->client, text)) return 138;
        }
    }
    if(!strcmp(id, "old-id")) return mosquitto_set_clientid(d->client, "new-id");
    if(!strcmp(name, "hold")) return ERR_AUTH_DELAYED;
    if(!strcmp(name, "early")){
        mosquitto_complete_basic_auth(id, ERR_SUCCESS);
        return ERR_AUTH_DELAYED;
    }
    if(!strcmp(name, "late") || !strcmp(name, "late-no")){
        late_id = strdup(id);
        ticks = !strcmp(name, "late") ? 3 : -3;
        return ERR_AUTH_DELAYED;
    }
    if(!strcmp(name, "pw")) return d->password != NULL && d->password_len == 3 && !memcmp(d->password, "a\0b", 3) ? 0 : ERR_AUTH;
    return ERR_SUCCESS;
}

static int on_tick(int event, void *data, void *userdata)
{
    (void)event;
    (void)userdata;
    ((struct mosquitto_evt_tick *)data)->next_ms = 10;
    if(late_id != NULL && (ticks == 1 || ticks == -1)){
        mosquitto_complete_basic_auth(late_id, ticks == 1 ? ERR_SUCCESS : ERR_AUTH);
        free(late_id);
        late_id = NULL;
    }
    ticks += ticks > 0 ? -1 : ticks < 0 ? 1 : 0;
    return ERR_SUCCESS;
}

static int on_acl(int event, void *data, void *userdata)
{
    struct mosquitto_evt_acl_check *d = data;
    char *name = NULL, *value = NULL;
    int result = ERR_SUCCESS;
    (void)event;
    (void)userdata;
    take_time(d->topic);
    if(!strncmp(d->topic, "ignore/", 7)) return ERR_PLUGIN_IGNORE;
    if(!strncmp(d->topic, "defer/", 6)){
        mosquitto_log_printf(LEVEL_INFO, "access %d to %s as %s, %d subscriptions: deferred", d->access, d->topic, shown(mosquitto_client_username(d->client)),
                             mosquitto_client_sub_count(d->client));
        return ERR_PLUGIN_DEFER;
    }
    if(!strncmp(d->topic, "text/", 5) && d->payloadlen && strlen(d->payload) != d->payloadlen) return ERR_ACL_DENIED;
    if(!strncmp(d->topic, "forbidden", 9)) result = ERR_ACL_DENIED;
    if(d->access == ACCESS_WRITE && d->payloadlen == 6 && !memcmp(d->payload, "secret", 6)) result = ERR_ACL_DENIED;
    if(d->access == ACCESS_READ && d->payloadlen == 4 && !memcmp(d->payload, "hide", 4)) result = ERR_ACL_DENIED;
    if(mosquitto_property_read_string_pair(d->properties, 38, &name, &value, false) != NULL && !strcmp(name, "deny")) result = ERR_ACL_DENIED;
    mosquitto_free(name);
    mosquitto_free(value);
    if(!strcmp(d->topic, "crash")) abort();
    return result;
}

static int on_extended(int event, void *data, void *userdata)
{
    struct mosquitto_evt_extended_auth *d = data;
    (void)userdata;
    if(strcmp(d->auth_method, "mirror")) return ERR_NOT_SUPPORTED;
    if(event == EVENT_EXT_AUTH_CONTINUE) return d->data_in_len == 3 && !memcmp(d->data_in, "yes", 3) ? ERR_SUCCESS : ERR_AUTH;
    if(!strcmp(d->data_in, "at once")) return mosquitto_set_username(d->client, "mirrored");
    d->data_out = malloc(d->data_in_len + 1u);
    for(int i = 0; i < d->data_in_len; i++) ((char *)d->data_out)[i] = ((const char *)d->data_in)[d->data_in_len - 1 - i];
    d->data_out_len = d->data_in_len;
    return ERR_AUTH_CONTINUE;
}

static int on_message_in(int event, void *data, void *userdata)
{
    struct mosquitto_evt_message *d = data;
    (void)event;
    (void)userdata;
    take_time(d->topic);
    if(!strcmp(d->topic, "in/drop") || !strcmp(d->topic, "slow/drop")) return ERR_ACL_DENIED;
    if(!strcmp(d->topic, "in/twice")){
        mosquitto_property_add_byte(&d->properties, 1, 7);
        mosquitto_property_add_string(&d->properties, 3, "second");
        mosquitto_property_add_string(&d->properties, 8, "answer/#");
        mosquitto_property_add_string(&d->properties, 8, "answer");
        mosquitto_property_add_string(&d->properties, 8, "answer");
    }
    if(!strcmp(d->topic, "in/strip")) mosquitto_property_free_all(&d->properties);
    if(!strcmp(d->topic, "in/longer")) d->payloadlen = 100000;
    if(!strcmp(d->topic, "in/bad")) d->topic = mosquitto_strdup("in/#/bad");
    if(strcmp(d->topic, "in/change")) return ERR_SUCCESS;
    d->topic = mosquitto_strdup("in/changed");
    d->payload = mosquitto_strdup("new");
    d->payloadlen = 3;
    d->properties = NULL;
    if(mosquitto_property_add_string_pair(&d->properties, 38, "user", mosquitto_client_username(d->client))) return ERR_ACL_DENIED;     /* NULL */
    return mosquitto_property_add_string_pair(&d->properties, 38, "key", "value");
}

static int on_message_out(int event, void *data, void *userdata)
{
    struct mosquitto_evt_message *d = data;
    mosquitto_property *one = d->properties;
    (void)event;
    (void)userdata;
    take_time(d->topic);
    if(!strcmp(d->topic, "out/drop") || !strcmp(d->topic, "slow/drop")) return ERR_ACL_DENIED;
    if(!strcmp(d->topic, "out/remove") && mosquitto_property_remove(&d->properties, one) == 0) mosquitto_property_free(&one);
    if(!strcmp(d->topic, "out/change") && d->payloadlen) ((char *)d->payload)[0] = mosquitto_client_id(d->client)[0];
    return ERR_SUCCESS;
}

static int on_subscribe(int event, void *data, void *userdata)
{
    struct mosquitto_evt_subscribe *d = data;
    (void)userdata;
    take_time(d->data.topic_filter);
    if(!strcmp(d->data.topic_filter, "sub/no") || !strcmp(d->data.topic_filter, "defer/no")) return ERR_ACL_DENIED;
    if(!strcmp(d->data.topic_filter, "sub/old")){
        d->data.topic_filter = mosquitto_strdup(event == EVENT_SUBSCRIBE ? "sub/new" : "sub/none");
        d->data.options = 0;
    }
    if(!strcmp(d->data.topic_filter, "sub/bytes")) d->data.topic_filter = mosquitto_strdup("sub/\xff");
    return ERR_SUCCESS;
}

static int count(const struct mosquitto *client, void *context)
{
    (void)client;
    ++*(int *)context;
    return 0;
}

static int on_client(int event, void *data, void *userdata)
{
    struct mosquitto_evt_disconnect *d = data;
    int n = 0;
    char text[300];
    (void)userdata;
    mosquitto_apply_on_all_clients(count, &n);
    snprintf(text, sizeof(text), "%s %s as %s reason %d known %d", event == EVENT_CONNECT ? "connect" : event == EVENT_DISCONNECT ? "disconnect" : "offline",
             mosquitto_client_id(d->client), shown(mosquitto_client_username(d->client)), event == EVENT_CONNECT ? 0 : d->reason,
             mosquitto_client(mosquitto_client_id(d->client)) == d->client && n > 0);
    mosquitto_log_printf(LEVEL_INFO, "%s", text);
    say("events", text);
    return ERR_SUCCESS;
}

static int on_control(int event, void *data, void *userdata)
{
    struct mosquitto_evt_control *d = data;
    char name[20];
    mosquitto_property *properties = NULL;
    (void)event;
    (void)userdata;
    snprintf(name, sizeof(name), "%.*s", (int)d->payloadlen, (const char *)d->payload);
    if(!strncmp(name, "kick ", 5)) return mosquitto_kick_client_by_clientid(name + 5, true);
    if(!strncmp(name, "user ", 5)) return mosquitto_kick_client_by_username(name + 5, true);
    if(!strncmp(name, "only ", 5)){
        mosquitto_property_add_string_pair(&properties, 38, "k", "v");
        return mosquitto_broker_publish(name + 5, "to/one", 2, mosquitto_strdup("hi"), 1, false, properties);
    }
    say("control/answer", name);
    return ERR_SUCCESS;
}

static int on_psk(int event, void *data, void *userdata)
{
    struct mosquitto_evt_psk_key *d = data;
    (void)event;
    (void)userdata;
    if(!strcmp(d->hint, "hint") && !strcmp(d->identity, "device")){
        snprintf(d->key, (size_t)d->max_key_len, "0102AB");
        return ERR_SUCCESS;
    }
    return ERR_AUTH;
}

static int on_reload(int event, void *data, void *userdata)
{
    struct mosquitto_evt_reload *d = data;
    (void)event;
    (void)userdata;
    mosquitto_log_printf(LEVEL_INFO, "first option %s", first_option);
    for(int i = 0; i < d->option_count; i++) mosquitto_log_printf(LEVEL_INFO, "reload with %s=%s", d->options[i].key, d->options[i].value);
    return ERR_SUCCESS;
}

static int on_restore(int event, void *data, void *userdata)
{
    (void)event;
    (void)data;
    (void)userdata;
    mosquitto_log_printf(LEVEL_INFO, "blocks in restore");
    for(;;) pause();
}

/* Publishes retained messages. */
static void give_birth(int n)
{
    char topic[30];
    for(int i = 0; i < n; i++){
        snprintf(topic, sizeof(topic), "birth/%d", i);
        mosquitto_broker_publish_copy(NULL, topic, 2, "hi", 1, true, NULL);
    }
}

static const struct { const char *name; int event; Callback call; } EVENTS_OF[] = {
    {"basic", EVENT_BASIC_AUTH, on_basic_auth}, {"acl", EVENT_ACL_CHECK, on_acl}, {"extended", EVENT_EXT_AUTH_START, on_extended},
    {"extended", EVENT_EXT_AUTH_CONTINUE, on_extended}, {"in", EVENT_MESSAGE_IN, on_message_in}, {"out", EVENT_MESSAGE_OUT, on_message_out},
    {"subscribe", EVENT_SUBSCRIBE, on_subscribe}, {"subscribe", EVENT_UNSUBSCRIBE, on_subscribe}, {"clients", EVENT_CONNECT, on_client},
    {"clients", EVENT_DISCONNECT, on_client}, {"clients", EVENT_CLIENT_OFFLINE, on_client}, {"tick", EVENT_TICK, on_tick},
    {"psk", EVENT_PSK_KEY, on_psk}, {"reload", EVENT_RELOAD, on_reload}, {"restore", EVENT_RESTORE, on_restore},
};

int mosquitto_plugin_version(int n, const int *supported)
{
    return n == 4 && supported[0] == 5 ? 5 : -1;
}

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    const char *wanted = "";
    int result;
    me = identifier;
    *userdata = &ticks;
    if(n) first_option = options[0].value;
    mosquitto_log_printf(LEVEL_INFO, "initialized by user %d", (int)geteuid());
    for(int i = 0; i < n; i++){
        if(!strcmp(options[i].key, "events")) wanted = options[i].value;
        if(!strcmp(options[i].key, "info")) mosquitto_plugin_set_info(me, options[i].value, "1.2");
        if(!strcmp(options[i].key, "birth")) give_birth(atoi(options[i].value));
        if(!strcmp(options[i].key, "gate")) snprintf(gate, sizeof(gate), "%s", options[i].value);
        if(!strcmp(options[i].key, "block")){
            mosquitto_log_printf(LEVEL_INFO, "blocks in init");
            wait_for(options[i].value);
        }
        if(!strcmp(options[i].key, "fail")) return atoi(options[i].value);
    }
    for(size_t i = 0; i < sizeof(EVENTS_OF) / sizeof(EVENTS_OF[0]); i++){
        if(strstr(wanted, EVENTS_OF[i].name) == NULL) continue;
        if((result = mosquitto_callback_register(me, EVENTS_OF[i].event, EVENTS_OF[i].call, NULL, &ticks)) != 0) return result;
        result = mosquitto_callback_register(me, EVENTS_OF[i].event, EVENTS_OF[i].call, NULL, &ticks);
        if(result != ERR_ALREADY_EXISTS) return 99;
    }
    if(strstr(wanted, "control") != NULL) return mosquitto_callback_register(me, EVENT_CONTROL, on_control, "$CONTROL/test/v1", NULL);
    return ERR_SUCCESS;
}

int mosquitto_plugin_cleanup(void *userdata, struct mosquitto_opt *options, int n)
{
    (void)options;
    (void)n;
    mosquitto_log_printf(LEVEL_INFO, "cleaned up %d", userdata == &ticks);
    mosquitto_callback_unregister(me, EVENT_BASIC_AUTH, on_basic_auth, NULL);
    return mosquitto_callback_unregister(me, EVENT_BASIC_AUTH, on_basic_auth, NULL) == ERR_NOT_FOUND ? 0 : 1;
}
