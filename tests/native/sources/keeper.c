/* A persistence plugin. It appends a line for each event to its file, and restores by doing again what the lines say.
 * plugin_opt_file: the file; plugin_opt_mode: errors, slow, nonsense, lossy or late (see below). */
#include "plugin.h"

int mosquitto_persist_client_add(struct mosquitto_client *);
int mosquitto_persist_client_update(struct mosquitto_client *);
int mosquitto_persist_client_delete(const char *);
int mosquitto_persist_client_msg_add(struct mosquitto_client_msg *);
int mosquitto_persist_client_msg_delete(struct mosquitto_client_msg *);
int mosquitto_persist_client_msg_update(struct mosquitto_client_msg *);
int mosquitto_persist_client_msg_clear(struct mosquitto_client_msg *);
int mosquitto_persist_base_msg_add(struct mosquitto_base_msg *);
int mosquitto_persist_base_msg_delete(uint64_t);
int mosquitto_persist_retain_msg_set(const char *, uint64_t);
int mosquitto_persist_retain_msg_delete(const char *);
int mosquitto_subscription_add(const struct mosquitto_subscription *);
int mosquitto_subscription_delete(const char *, const char *);
int mosquitto_client_will_set(const char *, const char *, int, const void *, int, bool, mosquitto_property *);

static char *path, *mode;
static FILE *file;

static int is_mode(const char *name) { return mode != NULL && !strcmp(mode, name); }

static int done(void)
{
    fflush(file);
    if(is_mode("slow")) usleep(300000);
    return is_mode("errors") ? ERR_UNKNOWN : ERR_SUCCESS;
}

static int on_client(int event, void *data, void *userdata)
{
    const struct mosquitto_client *c = &((struct mosquitto_evt_persist_client *)data)->data;
    fprintf(file, "%s|%s|%s|%u|%ld|%u|%ld|%d|%d|%d\n", (const char *)userdata, c->clientid, shown(c->username), c->session_expiry_interval,
            (long)c->session_expiry_time, c->will_delay_interval, (long)c->will_delay_time, c->listener_port != 0, c->max_qos, c->retain_available);
    (void)event;
    return done();
}

static int on_subscription(int event, void *data, void *userdata)
{
    const struct mosquitto_subscription *s = &((struct mosquitto_evt_persist_subscription *)data)->data;
    fprintf(file, "%s|%s|%s|%d|%u\n", (const char *)userdata, s->clientid, s->topic_filter, s->options, s->identifier);
    (void)event;
    return done();
}

static int on_base(int event, void *data, void *userdata)
{
    const struct mosquitto_base_msg *m = &((struct mosquitto_evt_persist_base_msg *)data)->data;
    char *name = NULL, *value = NULL;
    if(m->properties != NULL) mosquitto_property_read_string_pair(m->properties, 38, &name, &value, false);
    fprintf(file, "%s|%lu|%ld|%s|%.*s|%s|%d|%d|%d|%s|%s\n", (const char *)userdata, (unsigned long)m->store_id, (long)m->expiry_time, shown(m->topic),
            (int)m->payloadlen, m->payload == NULL ? "" : (const char *)m->payload, shown(m->source_id), m->source_mid, m->qos, m->retain, shown(name), shown(value));
    free(name);
    free(value);
    (void)event;
    return done();
}

static int on_message(int event, void *data, void *userdata)
{
    const struct mosquitto_client_msg *m = &((struct mosquitto_evt_persist_client_msg *)data)->data;
    fprintf(file, "%s|%s|%lu|%lu|%u|%d|%d|%d|%d|%d|%d\n", (const char *)userdata, m->clientid, (unsigned long)m->cmsg_id, (unsigned long)m->store_id,
            m->subscription_identifier, m->mid, m->qos, m->retain, m->dup, m->direction, m->state);
    (void)event;
    return done();
}

static int on_retained(int event, void *data, void *userdata)
{
    const struct mosquitto_evt_persist_retain_msg *r = data;
    fprintf(file, "%s|%s|%lu\n", (const char *)userdata, r->topic, (unsigned long)r->store_id);
    (void)event;
    return done();
}

static int on_will(int event, void *data, void *userdata)
{
    const struct mosquitto_will_msg *w = &((struct mosquitto_evt_persist_will_msg *)data)->data;
    fprintf(file, "%s|%s|%s|%.*s|%d|%d\n", (const char *)userdata, w->clientid, shown(w->topic), (int)w->payloadlen,
            w->payload == NULL ? "" : (const char *)w->payload, w->qos, w->retain);
    (void)event;
    return done();
}

/* ---- restoring */

static char *text_or_null(const char *text) { return strcmp(text, "-") ? strdup(text) : NULL; }
static unsigned long number(const char *text) { return strtoul(text, NULL, 10); }

/* Returns the place of a client id among those that are there; NULL: it is added now, because it was not. */
static char *is_there(const char *id)
{
    static char ids[256][64];
    for(size_t i = 0; i < 256; i++){
        if(!strcmp(ids[i], id)) return ids[i];
    }
    for(size_t i = 0; i < 256; i++){
        if(!ids[i][0]){
            snprintf(ids[i], sizeof(ids[i]), "%s", id);
            return NULL;
        }
    }
    return NULL;
}

static int again(char **f)
{
    if(!strcmp(f[0], "client-add") || !strcmp(f[0], "client-update")){
        struct mosquitto_client c;
        memset(&c, 0, sizeof(c));
        c.username = text_or_null(f[2]);
        c.session_expiry_interval = (uint32_t)number(f[3]);
        c.session_expiry_time = (time_t)number(f[4]);
        c.will_delay_interval = (uint32_t)number(f[5]);
        c.will_delay_time = (time_t)number(f[6]);
        if(!strcmp(f[0], "client-update") || is_there(f[1])){
            c.clientid = f[1];
            return mosquitto_persist_client_update(&c);
        }
        c.clientid = strdup(f[1]);
        return mosquitto_persist_client_add(&c);
    }
    if(!strcmp(f[0], "client-delete")){
        is_there(f[1])[0] = 0;
        return mosquitto_persist_client_delete(f[1]);
    }
    if(!strcmp(f[0], "sub-add")){
        struct mosquitto_subscription s;
        memset(&s, 0, sizeof(s));
        s.clientid = f[1];
        s.topic_filter = f[2];
        s.options = (uint8_t)number(f[3]);
        s.identifier = (uint32_t)number(f[4]);
        return mosquitto_subscription_add(&s);
    }
    if(!strcmp(f[0], "sub-delete")) return mosquitto_subscription_delete(f[1], f[2]);
    if(!strcmp(f[0], "base-add")){
        struct mosquitto_base_msg m;
        memset(&m, 0, sizeof(m));
        m.store_id = number(f[1]);
        m.expiry_time = (int64_t)number(f[2]);
        m.topic = strdup(f[3]);
        m.payload = strdup(is_mode("lossy") ? "" : f[4]);
        m.payloadlen = (uint32_t)strlen(m.payload);
        m.qos = (uint8_t)number(f[7]);
        m.retain = number(f[8]);
        if(strcmp(f[9], "-")) mosquitto_property_add_string_pair(&m.properties, 38, f[9], f[10]);
        return mosquitto_persist_base_msg_add(&m);
    }
    if(!strcmp(f[0], "base-delete")) return mosquitto_persist_base_msg_delete(number(f[1]));
    if(!strncmp(f[0], "msg-", 4)){
        struct mosquitto_client_msg m;
        memset(&m, 0, sizeof(m));
        m.clientid = f[1];
        m.cmsg_id = number(f[2]);
        m.store_id = number(f[3]);
        m.subscription_identifier = (uint32_t)number(f[4]);
        m.mid = (uint16_t)number(f[5]);
        m.qos = (uint8_t)number(f[6]);
        m.retain = number(f[7]);
        m.dup = (uint8_t)number(f[8]);
        m.direction = (uint8_t)number(f[9]);
        m.state = (uint8_t)number(f[10]);
        if(!strcmp(f[0], "msg-add")) return mosquitto_persist_client_msg_add(&m);
        return f[0][4] == 'd' ? mosquitto_persist_client_msg_delete(&m) : mosquitto_persist_client_msg_update(&m);
    }
    if(!strcmp(f[0], "retain-set")) return mosquitto_persist_retain_msg_set(f[1], number(f[2]));
    if(!strcmp(f[0], "retain-delete")) return mosquitto_persist_retain_msg_delete(f[1]);
    if(!strcmp(f[0], "will-add")) return mosquitto_client_will_set(f[1], f[2], (int)strlen(f[3]), f[3], (int)number(f[4]), number(f[5]), NULL);
    return ERR_SUCCESS;
}

/* What no plugin should do. The results are in the log. */
static void nonsense(void)
{
    struct mosquitto_client c;
    struct mosquitto_base_msg b;
    struct mosquitto_client_msg m;
    struct mosquitto_subscription s;
    int results[16], n = 0;
    memset(&c, 0, sizeof(c));
    memset(&b, 0, sizeof(b));
    memset(&m, 0, sizeof(m));
    memset(&s, 0, sizeof(s));
    results[n++] = mosquitto_persist_client_add(NULL);
    results[n++] = mosquitto_persist_client_add(&c);
    c.clientid = strdup("");
    results[n++] = mosquitto_persist_client_add(&c);
    c.clientid = strdup("good");
    c.session_expiry_interval = UINT32_MAX;
    results[n++] = mosquitto_persist_client_add(&c);
    c.clientid = strdup("good");
    results[n++] = mosquitto_persist_client_add(&c);
    c.clientid = strdup("bad \xff");
    results[n++] = mosquitto_persist_client_add(&c);            /* taken, and left out by the import */
    s.clientid = "nobody";
    s.topic_filter = "a";
    results[n++] = mosquitto_subscription_add(&s);
    s.clientid = "good";
    s.topic_filter = "a/#/b";
    results[n++] = mosquitto_subscription_add(&s);              /* the same */
    results[n++] = mosquitto_persist_base_msg_add(&b);
    b.topic = strdup("a");
    b.payloadlen = 10;
    results[n++] = mosquitto_persist_base_msg_add(&b);
    b.topic = strdup("a/+");
    b.payloadlen = 0;
    b.store_id = UINT64_MAX;
    b.expiry_time = INT64_MIN;
    results[n++] = mosquitto_persist_base_msg_add(&b);          /* the same */
    results[n++] = mosquitto_persist_retain_msg_set("a", 12345);
    m.clientid = "good";
    m.store_id = UINT64_MAX;
    m.state = 200;
    results[n++] = mosquitto_persist_client_msg_add(&m);
    m.state = 11;
    m.direction = 7;
    results[n++] = mosquitto_persist_client_msg_add(&m);
    results[n++] = mosquitto_client_will_set("good", "a", 3, NULL, 1, false, NULL);
    results[n++] = mosquitto_client_will_set("good", "", 0, NULL, 1, false, NULL);
    for(int i = 0; i < n; i++) mosquitto_log_printf(LEVEL_INFO, "nonsense %d: %d", i, results[i]);
}

static int is_deleted_later(const char *id, FILE *lines)
{
    char line[4096], wanted[512];
    long at = ftell(lines);
    int found = 0;
    snprintf(wanted, sizeof(wanted), "will-delete|%s|", id);
    while(!found && fgets(line, sizeof(line), lines) != NULL) found = !strncmp(line, wanted, strlen(wanted));
    fseek(lines, at, SEEK_SET);
    return found;
}

static int on_restore(int event, void *data, void *userdata)
{
    char line[4096], *fields[16], *rest, *end;
    int failed = 0, n = 0;
    FILE *lines = fopen(path, "r");
    (void)event;
    (void)data;
    (void)userdata;
    while(lines != NULL && fgets(line, sizeof(line), lines) != NULL){
        line[strcspn(line, "\n")] = 0;
        rest = line;
        for(int i = 0; i < 16; i++){
            fields[i] = rest;
            if((end = strchr(rest, '|')) != NULL){
                *end = 0;
                rest = end + 1;
            }else{
                rest += strlen(rest);
            }
        }
        if(!strcmp(fields[0], "will-add") && is_deleted_later(fields[1], lines)) continue;
        n++;
        if(again(fields) != ERR_SUCCESS) failed++;
    }
    if(lines != NULL) fclose(lines);
    if(is_mode("nonsense")) nonsense();
    mosquitto_log_printf(LEVEL_INFO, "restored %d lines, %d failed", n, failed);
    return is_mode("errors") ? ERR_UNKNOWN : ERR_SUCCESS;
}

static int on_tick(int event, void *data, void *userdata)
{
    (void)event;
    (void)data;
    (void)userdata;
    if(is_mode("late")) mosquitto_log_printf(LEVEL_INFO, "late: %d", mosquitto_persist_client_delete("c"));
    return ERR_SUCCESS;
}

int mosquitto_plugin_version(int n, const int *versions)
{
    (void)n;
    (void)versions;
    return 5;
}

int mosquitto_plugin_init(Plugin *p, void **userdata, struct mosquitto_opt *options, int n)
{
    static const struct { int event; Callback call; const char *name; } CALLS[] = {
        {EVENT_CLIENT_ADD, on_client, "client-add"}, {EVENT_CLIENT_UPDATE, on_client, "client-update"}, {EVENT_CLIENT_DELETE, on_client, "client-delete"},
        {EVENT_SUBSCRIPTION_ADD, on_subscription, "sub-add"}, {EVENT_SUBSCRIPTION_DELETE, on_subscription, "sub-delete"},
        {EVENT_BASE_MSG_ADD, on_base, "base-add"}, {EVENT_BASE_MSG_DELETE, on_base, "base-delete"},
        {EVENT_CLIENT_MSG_ADD, on_message, "msg-add"}, {EVENT_CLIENT_MSG_UPDATE, on_message, "msg-update"}, {EVENT_CLIENT_MSG_DELETE, on_message, "msg-delete"},
        {EVENT_RETAIN_SET, on_retained, "retain-set"}, {EVENT_RETAIN_DELETE, on_retained, "retain-delete"},
        {EVENT_WILL_ADD, on_will, "will-add"}, {EVENT_WILL_DELETE, on_will, "will-delete"},
        {EVENT_RESTORE, on_restore, "restore"}, {EVENT_TICK, on_tick, "tick"},
    };
    (void)userdata;
    for(int i = 0; i < n; i++){
        if(!strcmp(options[i].key, "file")) path = strdup(options[i].value);
        if(!strcmp(options[i].key, "mode")) mode = strdup(options[i].value);
    }
    file = path == NULL ? NULL : fopen(path, "a");
    if(file == NULL) return ERR_INVAL;
    for(size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++){
        if(mosquitto_callback_register(p, CALLS[i].event, CALLS[i].call, NULL, (void *)CALLS[i].name)) return ERR_UNKNOWN;
    }
    return ERR_SUCCESS;
}

int mosquitto_plugin_cleanup(void *userdata, struct mosquitto_opt *options, int n)
{
    (void)userdata;
    (void)options;
    (void)n;
    fclose(file);
    return ERR_SUCCESS;
}
