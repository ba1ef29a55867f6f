/* What the files of the shim share, and what the broker calls. docs/plugins-c.md describes the whole; docs/adr/0020 says why. */
#ifndef MOSQ_SHIM_H
#define MOSQ_SHIM_H

#include <pthread.h>

#include "interface.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct { const uint8_t *p; uint32_t n; } View;

/* When a line was logged that may come often, and how many have been left out since. */
typedef struct { int64_t logged_ms; int left_out; } Seldom;

/* ---- clients.c: what plugins see of a client */

/* The broker's side of a client: 24 bytes that requests of the data plane bring along (client_facts_put in auth_requests.pyx). */
typedef struct {
    uint64_t connection;        /* number of the connection; 0: the client is not connected */
    uint32_t subscriptions;
    uint16_t keepalive;
    uint16_t listener_port;
    uint8_t version;            /* 3, 4, 5; 0: nothing is known */
    uint8_t clean_start;        /* 2: not known */
    uint8_t websockets;
    uint8_t unused[5];
} Facts;

/* A string that was replaced. A callback in another thread may still read it. */
typedef struct Old { struct Old *next; char *text; long since_s; } Old;

enum { CLIENT_NEW = 0, CLIENT_DELAYED, CLIENT_CONNECTED, CLIENT_GONE };

struct mosquitto {
    struct mosquitto *next;             /* in its bucket of the table of connections */
    struct mosquitto *next_named;       /* in its bucket of the table of names, if it is connected */
    char *id, *username, *address, *certificate, *method;
    Old *old;
    int n_old;
    Facts facts;
    uint64_t connection;
    int pins;                           /* calls that use it */
    int state;
    long used_s;
    bool exchanging;
    uint64_t login;                     /* handle of its login, if it was asked about on the loop */
    bool user_set, id_set;              /* a callback of its login has set them */
    bool completed;                     /* mosquitto_complete_basic_auth has come */
    bool listed;                        /* a plugin may complete its login: it is in this bucket of `logins`, by `next_named` */
    size_t bucket;
};

typedef struct Call Call;

struct mosquitto *client_pin(const Call *call, int event);     /* NULL: no memory */
void client_remember(struct mosquitto *client);         /* on the loop only, while the client is pinned */

/* Connected clients, by the data plane's index of the connection, so that the loop finds one for each message without a lock. Only
 * the loop reads it and puts clients in. A client that is gone is removed before it is freed, with the lock of clients.c held. */
enum { RECENT = 1 << 16 };
typedef struct { uint64_t connection; struct mosquitto *client; } Recent;
extern Recent recent_clients[RECENT];

static inline Recent *recent_of(uint64_t connection) { return &recent_clients[connection >> 32 & (RECENT - 1)]; }
void mosq_shim_client_known(const Call *call);
void mosq_shim_client_gone(uint64_t connection);
void client_unpin(struct mosquitto *client, int event, int result);
bool client_waits_twice(const struct mosquitto *client);
bool client_exchanging(uint64_t connection);            /* an exchange of AUTH packets has begun and not ended */
void client_exchange(uint64_t connection, bool begun);

/* ---- host.c: plugins, and the calls of their functions */

/* A call of a plugin: what the broker gives and gets. mosq/auth/native/calls.py has the same layout. */
struct Call {
    const char *client_id, *username, *address, *certificate, *method;
    const char *topic;          /* topic, filter, or the hint of a pre-shared key */
    const uint8_t *data;        /* password, payload, authentication data; NULL: none */
    const uint8_t *properties;  /* as in a packet, without their length */
    Facts facts;
    uint64_t login;             /* on the loop: handle of the login */
    uint32_t data_n, properties_n;
    int access, qos, retain, reason;
    uint32_t identifier;        /* of a subscription */
    int has_options;            /* reload: take the new options */
    struct mosquitto_opt *options;
    int n_options;
    /* results, allocated; call_free frees them */
    int result;
    int asked;                  /* number of callbacks that were called */
    char *new_username, *new_client_id, *new_topic;
    uint8_t *new_data, *new_properties;
    uint32_t new_data_n, new_properties_n;
    int user_set, changed, properties_changed;
    int new_qos, new_retain;
    int reason_code;
    char *reason_string;
    long next_ms;               /* tick: milliseconds until the next one; 0: the plugin did not ask */
    int actions;                /* 1: actions wait, see action_take */
};

typedef struct Registered {
    struct Registered *next;
    int event;
    Callback call;
    void *userdata;
    char *topic;                /* of a control topic */
    int64_t tick_due_ms;
    bool gone;                  /* unregistered while a call walks over the list */
} Registered;

struct mosquitto_plugin_id_t {
    Plugin *next;
    char *path, *shown;         /* shown: name for log lines, from the configuration */
    char *name, *version_text;  /* from mosquitto_plugin_set_info */
    void *library;
    void *userdata;
    int version;
    bool deny_special, on_loop, running;    /* running: its initialization has succeeded */
    struct mosquitto_opt *options;
    int n_options;
    Registered *registered;
    bool any_gone;              /* one of them is `gone` */
    uint32_t events;            /* bits 1 << event, of the registered ones */
    pthread_mutex_t lock;       /* held during each call */
    pthread_mutex_t list_lock;  /* held while `registered` changes, also during a call */
    Seldom dropped[2], properties, unasked;     /* lines about messages: dropped in and out, and their properties; about calls without memory */
    void *functions[16];        /* of versions 2 to 4, see versions.c */
};

enum { F_INIT, F_CLEANUP, F_SECURITY_INIT, F_SECURITY_CLEANUP, F_ACL, F_BASIC, F_PSK, F_START, F_CONTINUE };

/* The call that this thread is in. The line about a crash names it. */
typedef struct { Plugin *plugin; int event; } Within;

extern __thread Within within __attribute__((tls_model("initial-exec")));       /* so that it costs no call of a function */
int within_event(void);

static inline Within within_begin(Plugin *plugin, int event)
{
    Within was = within;
    within.plugin = plugin;
    within.event = event;
    return was;
}

static inline void within_end(Within was) { within = was; }

const char *event_name(int event);
void thread_watch(void);        /* a callback that ends this thread ends the broker with a line, which would stand still else */
int mosquitto_callback_register(Plugin *plugin, int event, Callback call, const void *data, void *userdata);
int plugin_call(Plugin *plugin, int event, Call *call);
void remove_gone(Plugin *plugin);
int plugin_notify(Plugin *plugin, int event, void *data);
void call_clear(Call *call);

/* The plugins of one listener, in their order. */
typedef struct {
    int n;
    int undecided;              /* verdict if no plugin checks access to topics: 1 allow, -1 the rules decide, 0 ask the control plane */
    int decides_logins;         /* 1: no other plugin and no file decides about logins */
    Plugin *plugins[];
} Realm;

/* ---- access.c */
int access_bytes(void);         /* size of the struct of a check */
int access_asked(Plugin *plugin, const struct mosquitto_evt_acl_check *asked);      /* calls the callbacks, with the lock held */

/* ---- persist.c: what persistence plugins keep */

/* A part of the broker's state, in an event or in a call of a plugin that restores it. mosq/auth/native/calls.py has the same layout. */
typedef struct {
    const char *client_id, *username, *topic;       /* topic: or filter */
    const uint8_t *data, *properties;               /* properties: as in a packet, without their length */
    uint64_t store_id, cmsg_id;
    int64_t ends_s;             /* of a session or of a message; 0: never */
    int64_t will_due_s;
    uint32_t data_n, properties_n;
    uint32_t will_delay_s, expiry_s, identifier, packet_max;
    uint16_t pid, port;
    uint8_t qos, retain, dup, direction, state, options;
} Stored;

enum { CLIENT_MSG_CLEAR = EVENTS };     /* a call of a plugin that restores; no event reports it */

/* Takes what a plugin restores; `event` is the one that would report it. Returns the result for the plugin. */
typedef int (*Taker)(int event, const Stored *stored);

bool restoring(void);           /* this thread is in the callback of a restore */

/* ---- library.c */
int library_open(Plugin *plugin);

/* ---- versions.c: interface versions 2 to 4 in terms of 5 */
int version_functions(Plugin *plugin);
int version_load(Plugin *plugin);
int version_cleanup(Plugin *plugin);

/* ---- actions.c: what plugins ask of the broker */
enum { DO_LOG = 1, DO_PUBLISH, DO_KICK_ID, DO_KICK_USER, DO_COMPLETE, DO_OUTCOME };

typedef struct Action {
    struct Action *next;
    int kind;
    int level;                  /* of a line; the result of a login; with the will or not; a login succeeded */
    int qos, retain;
    uint64_t connection;
    uint64_t login;             /* handle of a login that was asked about on the loop; 0: none */
    char *text;                 /* line, topic, client id or user name; NULL: none */
    char *client_id;            /* publish: only to this client; of a login: its address */
    uint8_t *data;
    uint32_t data_n;
    uint8_t *properties;
    uint32_t properties_n;
} Action;

Action *action_new(int kind);
void action_put(Action *action);
void mosq_shim_action_free(Action *action);
void line_put(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs a line at most once a minute, with the number of those that were left out, and a full stop. */
void line_seldom(Seldom *seldom, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
int actions_wait(void);

/* ---- properties.c */
mosquitto_property *properties_read(const uint8_t *bytes, uint32_t n);      /* n is not 0. NULL: no memory */
/* What a PUBLISH passes on, as in a packet, without the length. NULL and n 0: none. -1: no memory, or more than a packet can have.
 * `left_out` gets the number of properties that no receiver would accept; it may be NULL. */
int properties_write(const mosquitto_property *first, uint8_t **bytes, uint32_t *n, int *left_out);
void mosquitto_property_free_all(mosquitto_property **first);
/* Notes the list of a message while callbacks have it: it no longer begins with a property that they remove or free. Returns the list of before. */
mosquitto_property **properties_hold(mosquitto_property **list);

/* ---- common.c */
int mosquitto_validate_utf8(const char *text, int n);
int mosquitto_pub_topic_check(const char *topic);       /* topics.c */
const char *mosquitto_strerror(int result);
long now_s(void);
int64_t now_ms(void);

/* The plugin leaves the decision to others. */
static inline bool undecided(int result) { return result == ERR_PLUGIN_DEFER || result == ERR_PLUGIN_IGNORE; }

/* A plugin that ignores an event counts as one that does not exist, also beside one that defers. */
static inline int decided(int sofar, int result) { return result == ERR_PLUGIN_IGNORE ? sofar : result; }

/* The next callback of an event; NULL: none. */
static inline Registered *next_of(Registered *one, int event)
{
    while(one != NULL && (one->event != event || one->gone)) one = __atomic_load_n(&one->next, __ATOMIC_ACQUIRE);
    return one;
}

#define FOR_EACH(p, event) for(Registered *one = next_of((p)->registered, (event)); one != NULL; one = next_of(one->next, (event)))

static inline void walk_end(Plugin *plugin)
{
    if(plugin->any_gone) remove_gone(plugin);
}

static inline bool plugin_wants(Plugin *plugin, int event) { return __atomic_load_n(&plugin->events, __ATOMIC_ACQUIRE) >> event & 1; }

#endif
