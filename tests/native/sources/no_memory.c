/* Asks plugins as the data plane's loop does, again and again, and lets another allocation fail each time. Prints what is wrong.
 *
 * The plugins deny what belongs to the user "bad" or has the user property "deny", and set another name for "other": a verdict for which
 * a name or a property got lost would be wrong.
 */
#define _GNU_SOURCE
#include "../../../cext/shim/shim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* as in loop.c and access.c */
typedef struct { uint32_t total; uint8_t kind, a, b, c; uint64_t handle; uint32_t security; uint32_t n_fields; } Head;
typedef struct Answer { struct Answer *next; uint64_t handle; uint8_t kind, qos, retain; int32_t verdict; View text, bytes, extra, target; } Answer;
typedef struct {
    uint64_t connection;
    uint32_t subscriptions;
    uint8_t access, qos, retain, unused;
    const char *username;
    View topic, payload, properties;
    const Facts *facts;
    const char *address;
    View client_id;
} Asked;
Answer *mosq_shim_ask(Realm *realm, const Head *head, const View *fields, int *waits);
int mosq_shim_access(Realm *realm, const Asked *asked);
int mosq_shim_layout(int what);
Action *mosq_shim_action_take(void);
Realm *mosq_shim_realm(Plugin **plugins, int n, int undecided, int decides_logins);
const char *mosquitto_client_username(const struct mosquitto *);
int mosquitto_set_username(struct mosquitto *, const char *);
int mosquitto_set_clientid(struct mosquitto *, const char *);
const mosquitto_property *mosquitto_property_read_string_pair(const mosquitto_property *, int, char **, char **, bool);
int mosquitto_property_add_string_pair(mosquitto_property **, int, const char *, const char *);

enum { CONNECT = 1, AUTH, ACL, MESSAGE_IN, MESSAGE_OUT };

static int fail_at, allocations;
static bool all_later;                  /* each allocation after it fails, too */

int fails(void) { return fail_at && ++allocations >= fail_at && (all_later || allocations == fail_at); }

int failing_vasprintf(char **text, const char *format, va_list arguments) { return fails() ? -1 : vasprintf(text, format, arguments); }

static bool is_bad(const struct mosquitto *client, const mosquitto_property *properties)
{
    const char *name = mosquitto_client_username(client);
    return (name != NULL && strcmp(name, "bad") == 0) || mosquitto_property_read_string_pair(properties, 38, NULL, NULL, false) != NULL;
}

static int on_login(int event, void *data, void *userdata)
{
    struct mosquitto_evt_basic_auth *d = data;
    (void)event;
    (void)userdata;
    if(is_bad(d->client, NULL)) return ERR_AUTH;
    if(strcmp(mosquitto_client_username(d->client), "other") == 0){
        if(mosquitto_set_username(d->client, "limited") != 0 || mosquitto_set_clientid(d->client, "given") != 0) return ERR_AUTH;
    }else if(d->password == NULL || strcmp(d->password, "secret") != 0) return ERR_AUTH;
    return ERR_SUCCESS;
}

static int on_extended(int event, void *data, void *userdata)
{
    (void)event;
    (void)userdata;
    return is_bad(((struct mosquitto_evt_extended_auth *)data)->client, NULL) ? ERR_AUTH : ERR_SUCCESS;
}

static int on_acl(int event, void *data, void *userdata)
{
    struct mosquitto_evt_acl_check *d = data;
    (void)event;
    (void)userdata;
    return is_bad(d->client, d->properties) ? ERR_ACL_DENIED : ERR_SUCCESS;
}

static int on_message(int event, void *data, void *userdata)
{
    struct mosquitto_evt_message *d = data;
    (void)event;
    (void)userdata;
    if(is_bad(d->client, d->properties)) return ERR_ACL_DENIED;
    if((d->topic = strdup("new")) == NULL) return ERR_NOMEM;
    return mosquitto_property_add_string_pair(&d->properties, 38, "from", "plugin");
}

static int on_subscribe(int event, void *data, void *userdata)
{
    struct mosquitto_evt_subscribe *d = data;
    (void)event;
    (void)userdata;
    return is_bad(d->client, NULL) || (d->data.topic_filter = strdup("new/#")) == NULL ? ERR_ACL_DENIED : ERR_SUCCESS;
}

static View view(const char *text) { return (View){(const uint8_t *)text, text == NULL ? 0 : (uint32_t)strlen(text)}; }

static int problems, lines;

/* Takes the lines of the log. */
static void take_lines(void)
{
    Action *action;
    fail_at = 0;
    while((action = mosq_shim_action_take()) != NULL){
        lines += action->kind == DO_LOG && action->text != NULL && strstr(action->text, "no memory") != NULL;
        mosq_shim_action_free(action);
    }
}

static const char DENY[] = {38, 0, 4, 'd', 'e', 'n', 'y', 0, 0};

typedef struct { const char *name; uint8_t kind; const char *user; bool deny, allowed; } Case;

static const Case CASES[] = {
    {"login", CONNECT, "good", false, true}, {"bad login", CONNECT, "bad", false, false}, {"renamed login", CONNECT, "other", false, true},
    {"exchange", AUTH, "good", false, true}, {"bad exchange", AUTH, "bad", false, false},
    {"subscribe", ACL, "good", false, true}, {"bad subscribe", ACL, "bad", false, false},
    {"publish", ACL, "good", false, true}, {"publish with property", ACL, "good", true, false},
    {"message in", MESSAGE_IN, "good", false, true}, {"bad message in", MESSAGE_IN, "bad", false, false},
    {"message in with property", MESSAGE_IN, "good", true, false}, {"message out with property", MESSAGE_OUT, "good", true, false},
};

/* Returns whether the request was allowed; `wrong`: neither answered nor kept waiting, or allowed without the changes. */
static bool ask(Realm *realm, const Case *one, uint64_t connection, bool *wrong)
{
    Head head = {0};
    Facts facts = {0};
    View fields[10] = {0};
    int waits = 0, facts_at = 6;
    bool allowed, subscribe = one->kind == ACL && strstr(one->name, "subscribe") != NULL;
    Answer *answer;
    facts.connection = connection;
    facts.version = 5;
    head.kind = one->kind;
    head.handle = 7;
    if(one->kind == CONNECT){
        View login[] = {view("id"), view(one->user), view("secret"), view("::1"), view(NULL), view(NULL), view(NULL), view(NULL), view(NULL)};
        memcpy(fields, login, sizeof(login));
        facts_at = 9;
    }else if(one->kind == AUTH){
        View step[] = {view("method"), view("data"), view("id"), view(one->user), view("::1")};
        memcpy(fields, step, sizeof(step));
        facts_at = 5;
    }else{
        View message[] = {view("id"), view(one->user), view("::1"), view("a/b"), view("payload"), {(const uint8_t *)DENY, one->deny ? sizeof(DENY) : 0}};
        memcpy(fields, message, sizeof(message));
        head.a = subscribe ? ACCESS_SUBSCRIBE : ACCESS_WRITE;
    }
    fields[facts_at] = (View){(const uint8_t *)&facts, sizeof(facts)};
    head.n_fields = (uint32_t)facts_at + 1;
    answer = mosq_shim_ask(realm, &head, fields, &waits);
    *wrong = answer == NULL && !waits;
    if(answer == NULL) return false;
    allowed = answer->verdict == (one->kind <= AUTH ? 0 : 1);
    if(allowed && strcmp(one->name, "renamed login") == 0){
        *wrong = answer->text.n != 7 || memcmp(answer->text.p, "limited", 7) != 0 || answer->extra.n != 5 || memcmp(answer->extra.p, "given", 5) != 0;
    }
    if(allowed && (subscribe || one->kind >= MESSAGE_IN)) *wrong = answer->text.p == NULL || memcmp(answer->text.p, "new", 3) != 0;
    if(allowed && one->kind >= MESSAGE_IN) *wrong = *wrong || answer->extra.n == 0;
    free(answer);
    return allowed;
}

/* The check of a message that is asked at once. */
static bool access(Realm *realm, const Case *one, uint64_t connection)
{
    Facts facts = {0};
    Asked asked = {.connection = connection, .access = ACCESS_WRITE, .username = one->user, .topic = view("a/b"), .payload = view("payload"),
                   .properties = {(const uint8_t *)DENY, one->deny ? sizeof(DENY) : 0}, .facts = &facts, .address = "::1", .client_id = view("id")};
    facts.connection = connection;
    facts.version = 5;
    return mosq_shim_access(realm, &asked) == 1;
}

static void run(Realm *realm, const Case *one, bool at_once, uint64_t *connection)
{
    bool allowed, wrong, failed = true;
    int result;
    for(int k = 1; failed; k++){
        fail_at = k;
        allocations = 0;
        wrong = false;
        result = at_once ? access(realm, one, ++*connection) : ask(realm, one, ++*connection, &wrong);
        allowed = result;
        failed = allocations >= k;
        fail_at = 0;
        if(wrong || (allowed && !one->allowed) || (!failed && allowed != one->allowed)){
            problems++;
            printf("%s%s, allocation %d fails%s: %s\n", one->name, at_once ? " at once" : "", k, all_later ? " and all later ones" : "",
                   allowed ? "allowed" : wrong ? "no answer" : "denied");
        }
        take_lines();
    }
}

int main(void)
{
    static Plugin plugin;
    Plugin *plugins[] = {&plugin};
    Realm *realm;
    uint64_t connection = 0;
    if(mosq_shim_layout(0) != sizeof(Head) || mosq_shim_layout(1) != sizeof(Answer) || mosq_shim_layout(4) != sizeof(Asked)) return 2;
    pthread_mutex_init(&plugin.lock, NULL);
    pthread_mutex_init(&plugin.list_lock, NULL);
    plugin.shown = "test";
    plugin.running = true;
    mosquitto_callback_register(&plugin, EVENT_BASIC_AUTH, on_login, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_EXT_AUTH_START, on_extended, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_EXT_AUTH_CONTINUE, on_extended, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_ACL_CHECK, on_acl, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_MESSAGE_IN, on_message, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_MESSAGE_OUT, on_message, NULL, NULL);
    mosquitto_callback_register(&plugin, EVENT_SUBSCRIBE, on_subscribe, NULL, NULL);
    realm = mosq_shim_realm(plugins, 1, 0, 1);
    for(int later = 0; later < 2; later++){
        all_later = later;
        for(size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++){
            run(realm, &CASES[i], false, &connection);
            if(CASES[i].kind == ACL && strstr(CASES[i].name, "publish") != NULL) run(realm, &CASES[i], true, &connection);
        }
    }
    if(lines == 0) printf("no line about the memory\n");
    printf("%d problems\n", problems);
    return problems > 0 || lines == 0;
}
