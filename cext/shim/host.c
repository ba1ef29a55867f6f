/* Loads native plugins and calls them.
 *
 *   mosq_shim_load -> the plugin's init -> mosquitto_callback_register ... mosq_shim_call(plugin, event, call) -> its callbacks
 *
 * Invariants: a plugin is in one call at a time, whichever threads ask: its lock is held during each call. What a callback puts
 * into an event's data is freed here, or given to the broker. Any thread may register and unregister callbacks at any time: calls
 * walk over the list without its lock, so it only grows while a call runs.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const EVENT_NAMES[EVENTS] = {
    "init", "reload", "acl-check", "basic-auth", "auth-start", "auth-continue", "control", "message-in", "psk-key", "tick",
    "disconnect", "connect", "subscribe", "unsubscribe", "persist-restore", "persist-base-msg-add", "persist-base-msg-delete",
    "persist-retain-msg-set", "persist-retain-msg-delete", "persist-client-add", "persist-client-delete", "persist-client-update",
    "persist-subscription-add", "persist-subscription-delete", "persist-client-msg-add", "persist-client-msg-delete",
    "persist-client-msg-update", "message-out", "client-offline", "persist-will-add", "persist-will-delete",
};

const char *event_name(int event) { return event >= 0 && event < EVENTS ? EVENT_NAMES[event] : ""; }

/* ---------------------------------------------------------------- crashes, and calls of exit() */

__thread Within within;
static char crash_log[4096];
enum { LOG_PAUSE_MS = 200 };
static const int64_t TICK_MAX_S = 365 * 86400;     /* plugins say never with any large number */
static struct sigaction before[NSIG];
static pid_t broker;            /* a plugin may fork: the end of its child is not that of the broker */
static const int CRASHES[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

int within_event(void) { return within.plugin == NULL ? -1 : within.event; }

static size_t put_text(char *line, size_t at, const char *text)
{
    while(*text && at < 900) line[at++] = *text++;
    return at;
}

static size_t put_decimal(char *line, size_t at, unsigned long number)
{
    char digits[24];
    int n = 0;
    do digits[n++] = (char)('0' + number % 10); while(number /= 10);
    while(n && at < 940) line[at++] = digits[--n];
    return at;
}

/* Writes the last line of the log: which plugin has ended the broker, in which event. Only functions that a signal handler may call. */
static void last_line(const char *how, int signal)
{
    char line[1024];
    size_t at;
    struct timespec now;
    int fd;
    poll(NULL, 0, LOG_PAUSE_MS);        /* the thread of the log writes the lines that came before */
    clock_gettime(CLOCK_REALTIME, &now);
    at = put_decimal(line, 0, (unsigned long)now.tv_sec);
    at = put_text(line, at, ": Error: ");
    at = put_text(line, at, within.plugin == NULL ? "A thread of a plugin" : "Plugin ");
    at = put_text(line, at, within.plugin == NULL ? "" : within.plugin->shown);
    at = put_text(line, at, how);
    if(signal) at = put_decimal(line, at, (unsigned long)signal);
    at = put_text(line, at, within.plugin == NULL ? "" : " in ");
    at = put_text(line, at, within.plugin == NULL ? "" : event_name(within.event));
    at = put_text(line, at, "; the broker ends.\n");
    if(write(2, line, at) < 0) at = at + 0;
    fd = crash_log[0] ? open(crash_log, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if(fd >= 0 && write(fd, line, at) < 0) at = at + 0;
    within.plugin = NULL;
}

static void on_crash(int number)
{
    if(within.plugin != NULL && getpid() == broker) last_line(" crashed with signal ", number);
    sigaction(number, &before[number], NULL);
    raise(number);
}

/* The broker itself ends in the first thread, and in no call of a plugin. */
static void on_exit_called(void)
{
    if(getpid() != broker || (within.plugin == NULL && syscall(SYS_gettid) == broker)) return;
    last_line(" called exit()", 0);
    _exit(EXIT_FAILURE);
}

static pthread_key_t end_key;
static bool end_key_made;

static void on_thread_end(void *unused)
{
    (void)unused;
    if(within.plugin == NULL || getpid() != broker) return;
    last_line(" called pthread_exit()", 0);
    _exit(EXIT_FAILURE);
}

void thread_watch(void)
{
    static __thread bool watched;
    if(!watched && end_key_made) watched = pthread_setspecific(end_key, &end_key) == 0;
}

EXPORT void mosq_shim_watch_crashes(const char *log_file)
{
    static bool watching;
    struct sigaction action;
    snprintf(crash_log, sizeof(crash_log), "%s", log_file == NULL ? "" : log_file);
    if(watching) return;
    watching = true;
    setvbuf(stdout, NULL, _IOLBF, 0);   /* lines that a plugin prints come at once, and are there before a crash */
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    broker = getpid();
    end_key_made = pthread_key_create(&end_key, on_thread_end) == 0;
    atexit(on_exit_called);
    at_quick_exit(on_exit_called);
    for(size_t i = 0; i < sizeof(CRASHES) / sizeof(CRASHES[0]); i++) sigaction(CRASHES[i], &action, &before[CRASHES[i]]);
}

/* ---------------------------------------------------------------- registering */

static const char *shown_name(const Plugin *p) { return p->name != NULL ? p->name : p->shown; }

EXPORT int mosquitto_plugin_set_info(Plugin *p, const char *name, const char *version)
{
    if(p == NULL || name == NULL) return ERR_INVAL;
    if(p->name == NULL || strcmp(p->name, name) != 0) p->name = strdup(name);      /* another thread may read the old texts */
    if(version == NULL) p->version_text = NULL;
    else if(p->version_text == NULL || strcmp(p->version_text, version) != 0) p->version_text = strdup(version);
    return ERR_SUCCESS;
}

static bool same_topic(const Registered *one, const char *topic)
{
    return one->topic == NULL || topic == NULL || strcmp(one->topic, topic) == 0;
}

static Registered *find(Plugin *p, int event, Callback call, const char *topic, bool gone)
{
    for(Registered *one = p->registered; one != NULL; one = one->next){
        if(one->gone == gone && one->event == event && one->call == call && same_topic(one, topic)) return one;
    }
    return NULL;
}

static void note_events(Plugin *p)
{
    uint32_t events = 0;
    for(Registered *one = p->registered; one != NULL; one = one->next){
        if(!one->gone) events |= 1u << one->event;
    }
    __atomic_store_n(&p->events, events, __ATOMIC_RELEASE);
}

static bool topic_taken(Plugin *p, const char *topic)
{
    for(Registered *one = p->registered; one != NULL; one = one->next){
        if(!one->gone && one->event == EVENT_CONTROL && strcmp(one->topic, topic) == 0) return true;
    }
    return false;
}

static int register_one(Plugin *p, int event, Callback call, const char *topic, void *userdata)
{
    Registered *made, **last;
    if(event == EVENT_CONTROL){
        if(topic == NULL || strncmp(topic, "$CONTROL/", 9) != 0 || strncmp(topic, "$CONTROL/broker/", 16) == 0 || strlen(topic) > 65535) return ERR_INVAL;
        if(topic_taken(p, topic)) return ERR_ALREADY_EXISTS;
    }else if(find(p, event, call, NULL, false) != NULL){
        return ERR_ALREADY_EXISTS;
    }
    made = find(p, event, call, topic, true);
    if(made != NULL){                   /* stays in its place: at the end of the list the call that runs now would reach it again */
        made->userdata = userdata;
        made->gone = false;
        note_events(p);
        return ERR_SUCCESS;
    }
    made = calloc(1, sizeof(*made));
    if(made == NULL || (event == EVENT_CONTROL && (made->topic = strdup(topic)) == NULL)){
        free(made);
        return ERR_NOMEM;
    }
    made->event = event;
    made->call = call;
    made->userdata = userdata;
    for(last = &p->registered; *last != NULL; last = &(*last)->next);
    __atomic_store_n(last, made, __ATOMIC_RELEASE);     /* a call may walk over the list */
    note_events(p);
    if(event == EVENT_CONTROL){
        line_put(LEVEL_INFO, "Plugin %s has registered to receive 'control' events on topic %s.", shown_name(p), topic);
    }else if(p->name != NULL){
        line_put(LEVEL_INFO, "Plugin %s has registered to receive '%s' events.", p->name, event_name(event));
    }else{
        line_put(LEVEL_INFO, "Plugin has registered to receive '%s' events.", event_name(event));
    }
    return ERR_SUCCESS;
}

EXPORT int mosquitto_callback_register(Plugin *p, int event, Callback call, const void *data, void *userdata)
{
    int result;
    if(p == NULL || call == NULL) return ERR_INVAL;
    if(event <= 0 || event >= EVENTS) return ERR_NOT_SUPPORTED;
    pthread_mutex_lock(&p->list_lock);
    result = register_one(p, event, call, data, userdata);
    pthread_mutex_unlock(&p->list_lock);
    return result;
}

/* Frees what was unregistered, at the end of a call: no other call walks over the list now. */
void remove_gone(Plugin *p)
{
    Registered **slot = &p->registered, *one;
    pthread_mutex_lock(&p->list_lock);
    p->any_gone = false;
    while((one = *slot) != NULL){
        if(!one->gone){
            slot = &one->next;
            continue;
        }
        *slot = one->next;
        free(one->topic);
        free(one);
    }
    pthread_mutex_unlock(&p->list_lock);
}

EXPORT int mosquitto_callback_unregister(Plugin *p, int event, Callback call, const void *data)
{
    Registered *one;
    if(p == NULL || call == NULL) return ERR_INVAL;
    if(event <= 0 || event >= EVENTS) return ERR_NOT_SUPPORTED;
    if(event == EVENT_CONTROL && data == NULL) return ERR_INVAL;
    pthread_mutex_lock(&p->list_lock);
    one = find(p, event, call, event == EVENT_CONTROL ? data : NULL, false);
    if(one != NULL){
        one->gone = p->any_gone = true;
        note_events(p);
    }
    pthread_mutex_unlock(&p->list_lock);
    if(pthread_mutex_trylock(&p->lock) == 0){           /* else at the end of the call */
        remove_gone(p);
        pthread_mutex_unlock(&p->lock);
    }
    return one == NULL ? ERR_NOT_FOUND : ERR_SUCCESS;
}

/* ---------------------------------------------------------------- loading */

static bool options_equal(const Plugin *p, const Call *call)
{
    if(p->n_options != call->n_options) return false;
    for(int i = 0; i < p->n_options; i++){
        if(strcmp(p->options[i].key, call->options[i].key) != 0 || strcmp(p->options[i].value, call->options[i].value) != 0) return false;
    }
    return true;
}

static struct mosquitto_opt *options_copied(const struct mosquitto_opt *options, int n)
{
    struct mosquitto_opt *copy = calloc((size_t)n + 1, sizeof(*copy));
    for(int i = 0; copy != NULL && i < n; i++){
        copy[i].key = strdup(options[i].key);
        copy[i].value = strdup(options[i].value);
    }
    return copy;
}

static int load(Plugin *p)
{
    int result;
    line_put(LEVEL_INFO, "Loading plugin: %s", p->path);
    result = library_open(p);
    if(result) return result;
    result = version_load(p);
    if(result) return result;
    if(p->name != NULL && p->version_text != NULL) line_put(LEVEL_INFO, "Plugin %s version %s loaded.", p->name, p->version_text);
    else if(p->name != NULL) line_put(LEVEL_INFO, "Plugin %s loaded.", p->name);
    return ERR_SUCCESS;
}

/* Loads and initializes a plugin. `status` gets 0, or the exit status that Mosquitto has then; the lines say why. A plugin that
 * failed stays in memory: its code may have started threads. */
EXPORT Plugin *mosq_shim_load(const char *path, const char *shown, const struct mosquitto_opt *options, int n, int deny_special, int *status)
{
    Plugin *p = calloc(1, sizeof(*p));
    Within was;
    *status = ERR_NOMEM;
    if(p == NULL) return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->list_lock, NULL);
    p->path = strdup(path);
    p->shown = strdup(shown);
    p->options = options_copied(options, n);
    p->n_options = n;
    p->deny_special = deny_special;
    if(p->path == NULL || p->shown == NULL || p->options == NULL) return NULL;
    thread_watch();
    pthread_mutex_lock(&p->lock);
    was = within_begin(p, 0);
    *status = load(p);
    within_end(was);
    p->running = *status == 0;
    pthread_mutex_unlock(&p->lock);
    return p->running ? p : NULL;
}

EXPORT void mosq_shim_deny_special(Plugin *p, int denied) { __atomic_store_n(&p->deny_special, denied != 0, __ATOMIC_RELAXED); }

EXPORT void mosq_shim_end(Plugin *p)
{
    int (*cleanup)(void *, struct mosquitto_opt *, int);
    Within was;
    pthread_mutex_lock(&p->lock);
    if(p->running){
        p->running = false;
        was = within_begin(p, 0);
        if(p->version < 5){
            version_cleanup(p);
        }else{
            *(void **)&cleanup = dlsym(p->library, "mosquitto_plugin_cleanup");
            if(cleanup != NULL) cleanup(p->userdata, p->options, p->n_options);
        }
        within_end(was);
    }
    pthread_mutex_unlock(&p->lock);
}

EXPORT uint32_t mosq_shim_events(Plugin *p) { return __atomic_load_n(&p->events, __ATOMIC_ACQUIRE); }
EXPORT const char *mosq_shim_name(Plugin *p) { return p->name; }
EXPORT int mosq_shim_version(Plugin *p) { return p->version; }

/* Returns whether a thread is in a call of the plugin. */
EXPORT int mosq_shim_busy(Plugin *p)
{
    if(pthread_mutex_trylock(&p->lock) != 0) return 1;
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Writes the control topics of a plugin, each with a line feed behind it, and returns their bytes. */
EXPORT int mosq_shim_topics(Plugin *p, char *out, int room)
{
    int n = 0, length;
    pthread_mutex_lock(&p->list_lock);
    for(Registered *one = p->registered; one != NULL; one = one->next){
        if(one->gone || one->topic == NULL) continue;
        length = (int)strlen(one->topic);
        if(n + length + 1 <= room){
            memcpy(out + n, one->topic, (size_t)length);
            out[n + length] = '\n';
        }
        n += length + 1;
    }
    pthread_mutex_unlock(&p->list_lock);
    return n;
}

EXPORT Realm *mosq_shim_realm(Plugin **plugins, int n, int undecided, int decides_logins)
{
    Realm *realm = calloc(1, sizeof(Realm) + (size_t)n * sizeof(Plugin *));
    if(realm == NULL) return NULL;
    realm->n = n;
    realm->undecided = undecided;
    realm->decides_logins = decides_logins;
    for(int i = 0; i < n; i++) realm->plugins[i] = plugins[i];
    return realm;
}

/* ---------------------------------------------------------------- calls */

void call_clear(Call *call)
{
    free(call->new_username);
    free(call->new_client_id);
    free(call->new_topic);
    free(call->new_data);
    free(call->new_properties);
    free(call->reason_string);
    call->new_username = call->new_client_id = call->new_topic = call->reason_string = NULL;
    call->new_data = call->new_properties = NULL;
}

EXPORT void mosq_shim_call_clear(Call *call) { call_clear(call); }

static void basic_auth(Plugin *p, Call *call, struct mosquitto *client)
{
    char *password = NULL;
    int result;
    if(call->data != NULL){
        password = malloc((size_t)call->data_n + 1);
        if(password == NULL){
            call->result = ERR_NOMEM;
            return;
        }
        memcpy(password, call->data, call->data_n);
        password[call->data_n] = 0;
    }
    call->result = ERR_PLUGIN_IGNORE;
    FOR_EACH(p, EVENT_BASIC_AUTH){
        struct mosquitto_evt_basic_auth data;
        memset(&data, 0, sizeof(data));
        data.client = client;
        data.username = client->username;
        data.password = password;
        data.password_len = (uint16_t)call->data_n;
        call->asked++;
        result = one->call(EVENT_BASIC_AUTH, &data, one->userdata);
        call->result = decided(call->result, result);
        if(!undecided(result)) break;
    }
    if(password != NULL){
        explicit_bzero(password, call->data_n);
        free(password);
    }
}

static void extended(Plugin *p, int event, Call *call, struct mosquitto *client)
{
    int result;
    call->result = ERR_PLUGIN_DEFER;
    FOR_EACH(p, event){
        struct mosquitto_evt_extended_auth data;
        memset(&data, 0, sizeof(data));
        data.client = client;
        data.auth_method = client->method;
        data.data_in = call->data;
        data.data_in_len = (uint16_t)call->data_n;
        call->asked++;
        result = one->call(event, &data, one->userdata);
        call->result = decided(call->result, result);
        if(undecided(result)) continue;
        call->new_data = data.data_out;
        call->new_data_n = data.data_out == NULL ? 0 : data.data_out_len;
        return;
    }
}

/* The properties of a call. Returns false, and sets the result of the call, if there is no memory. */
static bool properties_of(Call *call, mosquitto_property **properties)
{
    *properties = call->properties_n ? properties_read(call->properties, call->properties_n) : NULL;
    if(*properties != NULL || !call->properties_n) return true;
    call->result = ERR_NOMEM;
    return false;
}

static void acl_check(Plugin *p, Call *call, struct mosquitto *client)
{
    mosquitto_property *properties;
    struct mosquitto_evt_acl_check asked;
    if(!properties_of(call, &properties)) return;
    memset(&asked, 0, sizeof(asked));
    asked.client = client;
    asked.topic = call->topic;
    asked.payload = call->data_n ? call->data : NULL;
    asked.payloadlen = call->data_n;
    asked.properties = properties;
    asked.access = call->access;
    asked.qos = (uint8_t)call->qos;
    asked.retain = call->retain;
    call->result = access_asked(p, &asked);
    mosquitto_property_free_all(&properties);
}

/* What a message was, and what it has become. A callback puts new memory in the place of the old, or writes into the old. */
typedef struct {
    char *topic;
    void *payload;
    mosquitto_property *properties;
    uint32_t n;
} Held;

static void held_take(Held *held, struct mosquitto_evt_message *data)
{
    if(data->topic != held->topic){
        free(held->topic);
        held->topic = data->topic;
    }
    if(data->payload != held->payload){
        free(held->payload);
        held->payload = data->payload;
        held->n = data->payload == NULL ? 0 : data->payloadlen;
    }
    data->payloadlen = held->n;         /* without new memory there are no more bytes, and Mosquitto ignores the length */
    if(data->properties != held->properties){
        mosquitto_property_free_all(&held->properties);
        held->properties = data->properties;
    }
}

static void message_result(Plugin *p, int event, Call *call, Held *held, const struct mosquitto_evt_message *data, const uint8_t *were, uint32_t n_were)
{
    int left_out;
    if(held->topic != NULL && strcmp(held->topic, call->topic) != 0){
        call->new_topic = held->topic;
        held->topic = NULL;
        call->changed = 1;
    }
    if(held->n != call->data_n || (held->n && held->payload != NULL && memcmp(held->payload, call->data, held->n) != 0)){
        call->new_data = held->payload;
        call->new_data_n = held->payload == NULL ? 0 : held->n;
        held->payload = NULL;
        call->changed = 2 | call->changed;
    }
    if(properties_write(held->properties, &call->new_properties, &call->new_properties_n, &left_out) != 0){
        call->result = ERR_NOMEM;
        return;
    }
    if(call->new_properties_n != n_were || (n_were && memcmp(call->new_properties, were, n_were) != 0)) call->properties_changed = 1;
    if(left_out){
        line_seldom(&p->properties, LEVEL_WARNING, "Warning: Plugin %s gave a message on %s properties that MQTT forbids in %s; they are left out", shown_name(p),
                    call->topic, event_name(event));
    }
    call->new_qos = data->qos;
    call->new_retain = data->retain;
}

/* The data plane takes no other messages. */
static bool message_valid(const Held *held, const struct mosquitto_evt_message *data)
{
    const char *topic = held->topic;
    return topic == NULL || (mosquitto_pub_topic_check(topic) == 0 && mosquitto_validate_utf8(topic, (int)strlen(topic)) == 0 && data->qos <= 2);
}

static void message(Plugin *p, int event, Call *call, struct mosquitto *client)
{
    struct mosquitto_evt_message data;
    Held held = {strdup(call->topic), malloc((size_t)call->data_n + 1), NULL, call->data_n};
    Seldom *seldom = &p->dropped[event == EVENT_MESSAGE_OUT];
    mosquitto_property **outer;
    uint8_t *were = NULL;
    uint32_t n_were = 0;
    const char *why = "no memory";
    call->result = ERR_NOMEM;
    if(held.topic != NULL && held.payload != NULL && properties_of(call, &held.properties) && properties_write(held.properties, &were, &n_were, NULL) == 0){
        if(call->data_n) memcpy(held.payload, call->data, call->data_n);
        ((uint8_t *)held.payload)[call->data_n] = 0;
        memset(&data, 0, sizeof(data));
        data.client = client;
        data.topic = held.topic;
        data.payload = held.payload;
        data.payloadlen = held.n;
        data.properties = held.properties;
        data.qos = (uint8_t)call->qos;
        data.retain = call->retain;
        call->result = ERR_SUCCESS;
        outer = properties_hold(&held.properties);
        FOR_EACH(p, event){
            call->asked++;
            call->result = one->call(event, &data, one->userdata);
            held_take(&held, &data);
            if(call->result != ERR_SUCCESS) break;
        }
        properties_hold(outer);
        if(call->result != ERR_SUCCESS){
            why = mosquitto_strerror(call->result);
        }else if(!message_valid(&held, &data)){
            call->result = ERR_INVAL;
            why = "it gave the message an invalid topic or QoS";
        }
        call->reason_code = data.reason_code;
        call->reason_string = data.reason_string;
        if(call->result == ERR_SUCCESS) message_result(p, event, call, &held, &data, were, n_were);
    }
    if(call->result != ERR_SUCCESS){
        line_seldom(seldom, LEVEL_NOTICE, "Plugin %s has dropped a message on %s in %s: result %d, %s", shown_name(p), call->topic, event_name(event),
                    call->result, why);
    }
    free(were);
    free(held.topic);
    free(held.payload);
    mosquitto_property_free_all(&held.properties);
}

static void subscription(Plugin *p, int event, Call *call, struct mosquitto *client)
{
    mosquitto_property *properties;
    char *filter;
    struct mosquitto_evt_subscribe data;
    if(!properties_of(call, &properties)) return;
    filter = strdup(call->topic);
    memset(&data, 0, sizeof(data));
    data.client = client;
    data.data.topic_filter = filter;
    data.data.options = (uint8_t)call->qos;
    data.data.identifier = call->identifier;
    data.data.properties = properties;
    call->result = filter == NULL ? ERR_NOMEM : ERR_SUCCESS;
    if(filter != NULL){
        FOR_EACH(p, event){
            call->asked++;
            call->result = one->call(event, &data, one->userdata);
            if(data.data.topic_filter != filter){
                free(filter);
                filter = data.data.topic_filter;
            }
            if(call->result != ERR_SUCCESS) break;
        }
        if(call->result == ERR_SUCCESS && filter != NULL && strcmp(filter, call->topic) != 0){
            call->new_topic = filter;
            filter = NULL;
            call->changed = 1;
        }
        call->new_qos = data.data.options;
    }
    free(filter);
    mosquitto_property_free_all(&properties);
}

static void control(Plugin *p, Call *call, struct mosquitto *client)
{
    struct mosquitto_evt_control data;
    mosquitto_property *properties;
    if(!properties_of(call, &properties)) return;
    call->result = ERR_NOT_FOUND;
    FOR_EACH(p, EVENT_CONTROL){
        if(strcmp(one->topic, call->topic) != 0) continue;
        memset(&data, 0, sizeof(data));
        data.client = client;
        data.topic = call->topic;
        data.payload = call->data;
        data.payloadlen = call->data_n;
        data.properties = properties;
        data.qos = (uint8_t)call->qos;
        data.retain = call->retain;
        call->asked++;
        call->result = one->call(EVENT_CONTROL, &data, one->userdata);
        call->reason_code = data.reason_code;
        call->reason_string = data.reason_string;
        break;
    }
    mosquitto_property_free_all(&properties);
}

static void reload(Plugin *p, Call *call)
{
    struct mosquitto_evt_reload data;
    struct mosquitto_opt *options = call->has_options && !options_equal(p, call) ? options_copied(call->options, call->n_options) : NULL;
    if(options != NULL){                /* the old ones stay: plugins keep pointers to them, since Mosquitto never changes them */
        p->options = options;
        p->n_options = call->n_options;
    }
    memset(&data, 0, sizeof(data));
    data.options = p->options;
    data.option_count = p->n_options;
    FOR_EACH(p, EVENT_RELOAD){
        call->asked++;
        call->result = one->call(EVENT_RELOAD, &data, one->userdata);
        if(call->result){
            line_put(LEVEL_ERROR, "Error: Plugin %s produced error on reload: %d", shown_name(p), call->result);
            return;
        }
    }
}

static int64_t limited(int64_t n, int64_t most) { return n > most ? most : n < -most ? -most : n; }

/* Calls the ticks that are due. `next_ms`: until the next one; 0: no callback has asked for a time. */
static void tick(Plugin *p, Call *call)
{
    struct timespec now;
    struct mosquitto_evt_tick data;
    int64_t at_ms = now_ms(), next_ms, least = 0;
    FOR_EACH(p, EVENT_TICK){
        if(one->tick_due_ms <= at_ms){
            clock_gettime(CLOCK_MONOTONIC, &now);
            memset(&data, 0, sizeof(data));
            data.now_s = now.tv_sec;
            data.now_ns = now.tv_nsec;
            call->asked++;
            call->result = one->call(EVENT_TICK, &data, one->userdata);
            next_ms = limited(data.next_s, TICK_MAX_S) * 1000 + limited(data.next_ms, TICK_MAX_S * 1000);
            one->tick_due_ms = next_ms > 0 ? at_ms + next_ms : 0;
        }
        next_ms = one->tick_due_ms == 0 ? 1000 : one->tick_due_ms > at_ms ? one->tick_due_ms - at_ms : 1;
        if(least == 0 || next_ms < least) least = next_ms;
    }
    call->next_ms = (long)least;
}

static void notice(Plugin *p, int event, Call *call, struct mosquitto *client)
{
    FOR_EACH(p, event){
        struct mosquitto_evt_disconnect data;           /* CONNECT has the same layout, without a reason */
        memset(&data, 0, sizeof(data));
        data.client = client;
        data.reason = event == EVENT_CONNECT ? 0 : call->reason;
        call->asked++;
        call->result = one->call(event, &data, one->userdata);
    }
}

static void names_result(Call *call, const struct mosquitto *client)
{
    bool missing = false;
    if(client->user_set){
        call->user_set = 1;
        call->new_username = client->username == NULL ? NULL : strdup(client->username);
        missing = client->username != NULL && call->new_username == NULL;
    }
    if(client->id_set && client->id != NULL){
        call->new_client_id = strdup(client->id);
        missing = missing || call->new_client_id == NULL;
    }
    if(missing) call->result = ERR_NOMEM;
}

static void dispatch(Plugin *p, int event, Call *call, struct mosquitto *client)
{
    switch(event){
        case EVENT_BASIC_AUTH: basic_auth(p, call, client); break;
        case EVENT_EXT_AUTH_START:
        case EVENT_EXT_AUTH_CONTINUE: extended(p, event, call, client); break;
        case EVENT_ACL_CHECK: acl_check(p, call, client); break;
        case EVENT_MESSAGE_IN:
        case EVENT_MESSAGE_OUT: message(p, event, call, client); break;
        case EVENT_SUBSCRIBE:
        case EVENT_UNSUBSCRIBE: subscription(p, event, call, client); break;
        case EVENT_CONTROL: control(p, call, client); break;
        case EVENT_RELOAD: reload(p, call); break;
        case EVENT_TICK: tick(p, call); break;
        default: notice(p, event, call, client);
    }
}

int plugin_call(Plugin *p, int event, Call *call)
{
    struct mosquitto *client = NULL;
    Within was;
    call->result = ERR_SUCCESS;
    call->asked = 0;
    pthread_mutex_lock(&p->lock);
    if(p->running){
        if(event != EVENT_RELOAD && event != EVENT_TICK && (client = client_pin(call, event)) == NULL){
            if(event == EVENT_DISCONNECT || event == EVENT_CLIENT_OFFLINE) mosq_shim_client_gone(call->facts.connection);
            line_seldom(&p->unasked, LEVEL_WARNING, "Warning: Plugin %s is not asked in %s: no memory", shown_name(p), event_name(event));
            pthread_mutex_unlock(&p->lock);
            return call->result = ERR_NOMEM;
        }
        was = within_begin(p, event);
        if(event == EVENT_BASIC_AUTH && client_waits_twice(client)){
            line_put(LEVEL_NOTICE, "Client %s is refused: a plugin has not yet decided about another login with this client id.", client->id);
            call->result = ERR_UNKNOWN;
        }else{
            dispatch(p, event, call, client);
        }
        walk_end(p);
        within_end(was);
        if(client != NULL && (event == EVENT_BASIC_AUTH || event == EVENT_EXT_AUTH_START || event == EVENT_EXT_AUTH_CONTINUE)) names_result(call, client);
        client_unpin(client, event, call->result);
    }else{
        call->result = ERR_PLUGIN_DEFER;
    }
    pthread_mutex_unlock(&p->lock);
    call->actions = actions_wait();
    return call->result;
}

EXPORT int mosq_shim_call(Plugin *p, int event, Call *call) { return plugin_call(p, event, call); }

/* Calls the callbacks of an event that no client waits for. Returns the first result that is not 0. */
int plugin_notify(Plugin *p, int event, void *data)
{
    int result = ERR_SUCCESS, one_result;
    Within was;
    pthread_mutex_lock(&p->lock);
    was = within_begin(p, event);
    if(p->running){
        FOR_EACH(p, event){
            one_result = one->call(event, data, one->userdata);
            if(result == ERR_SUCCESS) result = one_result;
        }
    }
    walk_end(p);
    within_end(was);
    pthread_mutex_unlock(&p->lock);
    return result;
}

/* ---------------------------------------------------------------- pre-shared keys, asked during a handshake */

static int digit_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

static unsigned key_bytes(const char *text, unsigned char *key, unsigned room)
{
    size_t n = strlen(text), i = 0;
    unsigned at = 0;
    int high, low;
    if(n == 0 || (n + 1) / 2 > room) return 0;
    if(n % 2){
        if((low = digit_of(text[i++])) < 0) return 0;
        key[at++] = (unsigned char)low;
    }
    for(; i < n; i += 2){
        high = digit_of(text[i]);
        low = digit_of(text[i + 1]);
        if(high < 0 || low < 0) return 0;
        key[at++] = (unsigned char)(high << 4 | low);
    }
    return at;
}

/* Returns the bytes of the key of an identity, as the first plugin that knows it says; 0: none. -1: no plugin has an opinion. */
EXPORT int mosq_shim_psk(Realm *realm, const char *hint, const char *identity, unsigned char *key, unsigned room)
{
    char text[1025];
    struct mosquitto nobody;
    int result = ERR_PLUGIN_DEFER;
    unsigned n;
    Within was;
    memset(&nobody, 0, sizeof(nobody));
    for(int i = 0; i < realm->n && undecided(result); i++){
        Plugin *p = realm->plugins[i];
        pthread_mutex_lock(&p->lock);
        was = within_begin(p, EVENT_PSK_KEY);
        if(p->running){
            FOR_EACH(p, EVENT_PSK_KEY){
                struct mosquitto_evt_psk_key data;
                memset(&data, 0, sizeof(data));
                memset(text, 0, sizeof(text));
                data.client = &nobody;
                data.hint = hint;
                data.identity = identity;
                data.key = text;
                data.max_key_len = (int)(2 * room < sizeof(text) ? 2 * room : sizeof(text) - 1);
                result = one->call(EVENT_PSK_KEY, &data, one->userdata);
                if(!undecided(result)) break;
            }
        }
        walk_end(p);
        within_end(was);
        pthread_mutex_unlock(&p->lock);
    }
    n = result == ERR_SUCCESS ? key_bytes(text, key, room) : 0;
    explicit_bzero(text, sizeof(text));
    return undecided(result) ? -1 : (int)n;
}
