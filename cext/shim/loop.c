/* Native plugins with `plugin_thread loop`: the data plane's loop calls them, where a request would go to the control plane.
 *
 *   request of the loop (auth_requests.pyx) -> mosq_shim_ask -> callbacks -> the answer, or NULL: the control plane decides
 *
 * The structs repeat those of cext/broker/auth/auth_requests.pxd; mosq_shim_layout lets security_new compare their sizes.
 * Without memory a request is refused, also if the plugins were not asked.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t total; uint8_t kind, a, b, c; uint64_t handle; uint32_t security; uint32_t n_fields; } Head;

typedef struct Answer {
    struct Answer *next;
    uint64_t handle;
    uint8_t kind, qos, retain;
    int32_t verdict;
    View text, bytes, extra, target;
} Answer;

enum { ASK_CONNECT = 1, ASK_AUTH = 2, ASK_ACL = 3, ASK_MESSAGE_IN = 4, ASK_MESSAGE_OUT = 5, ASK_EVENT = 6 };
enum { NO_PAUSES, REPORT_OUTCOMES, ASK_PAUSES };                /* mosq_shim_pauses */
enum { WAITS = 1, WAITS_FOR_PAUSE = 2, NO_PAUSE = 3 };          /* `waits`: NATIVE_WAITS ... */
enum { CODE_CONTINUE = 0x18, CODE_NOT_AUTHORIZED = 0x87, CODE_SERVER_BUSY = 0x89, END_SILENTLY = -2, NOT_CHECKED = -3, NOT_ASKED = -1, OFFLINE_BIT = 32, TEXTS = 6 };

EXPORT int mosq_shim_layout(int what)
{
    return (int)(what == 0 ? sizeof(Head) : what == 1 ? sizeof(Answer) : what == 2 ? sizeof(Facts) : what == 3 ? sizeof(View) : (size_t)access_bytes());
}

/* ---------------------------------------------------------------- requests */

/* The texts of a request, each with a zero behind: callbacks expect C strings, also where a length is given. */
typedef struct { char *bytes; size_t room; char *text[TEXTS]; } Texts;

static bool texts_take(Texts *t, const View *fields, int n)
{
    size_t room = 1;
    char *p;
    for(int i = 0; i < n; i++) room += fields[i].p == NULL ? 0 : fields[i].n + (size_t)1;
    t->room = room;
    p = t->bytes = malloc(room);
    if(p == NULL) return false;
    for(int i = 0; i < n; i++){
        t->text[i] = NULL;
        if(fields[i].p == NULL) continue;
        t->text[i] = p;
        if(fields[i].n) memcpy(p, fields[i].p, fields[i].n);
        p[fields[i].n] = 0;
        p += fields[i].n + 1;
    }
    return true;
}

/* Frees texts with a password in them. */
static void texts_wipe(Texts *t)
{
    explicit_bzero(t->bytes, t->room);
    free(t->bytes);
}

static void facts_take(Call *call, const Head *head, const View *fields, uint32_t at)
{
    if(head->n_fields > at && fields[at].p != NULL && fields[at].n == sizeof(Facts)) memcpy(&call->facts, fields[at].p, sizeof(Facts));
}

/* ---------------------------------------------------------------- answers */

/* Stands for an answer that found no memory. It is never sent, and no answer would mean that others decide. */
static Answer without_memory;

static uint8_t *view_put(View *view, uint8_t *p, const void *bytes, size_t n)
{
    if(bytes == NULL) return p;
    view->p = p;
    view->n = (uint32_t)n;
    if(n) memcpy(p, bytes, n);
    return p + n;
}

static size_t length(const char *text) { return text == NULL ? 0 : strlen(text); }

static Answer *answer_new(const Head *head, int kind, int verdict, const char *text, const void *bytes, size_t n, const void *extra, size_t extra_n)
{
    Answer *answer = calloc(1, sizeof(Answer) + length(text) + n + extra_n + 1);
    uint8_t *p;
    if(answer == NULL) return &without_memory;
    answer->kind = (uint8_t)kind;
    answer->handle = head->handle;
    answer->verdict = verdict;
    p = view_put(&answer->text, (uint8_t *)(answer + 1), text, length(text));
    p = view_put(&answer->bytes, p, bytes, n);
    view_put(&answer->extra, p, extra, extra_n);
    return answer;
}

static int refusal(int result)
{
    static const uint8_t CODES[] = {128, 131, 133, 134, 136, 137, 138, 140, 159};
    if(result == ERR_AUTH || result == ERR_ACL_DENIED) return CODE_NOT_AUTHORIZED;
    return result > 0 && result < 256 && memchr(CODES, result, sizeof(CODES)) != NULL ? result : END_SILENTLY;
}

/* The answer to a login, or to a step of an exchange, that a plugin has decided. */
static Answer *login_answer(const Head *head, const Plugin *plugin, const Call *call, bool extended)
{
    const char *name = call->user_set ? call->new_username == NULL ? "" : call->new_username : NULL;
    if(call->result == ERR_SUCCESS) return answer_new(head, ASK_CONNECT, 0, name, call->new_data, call->new_data_n, call->new_client_id, length(call->new_client_id));
    if(call->result == ERR_AUTH_CONTINUE && extended){
        return answer_new(head, ASK_CONNECT, CODE_CONTINUE, NULL, call->new_data == NULL ? (const void *)"" : call->new_data, call->new_data_n, NULL, 0);
    }
    return answer_new(head, ASK_CONNECT, refusal(call->result), plugin->shown, NULL, 0, NULL, 0);
}

static bool realm_wants(Realm *realm, int event)
{
    for(int i = 0; i < realm->n; i++){
        if(plugin_wants(realm->plugins[i], event)) return true;
    }
    return false;
}

/* Asks the plugins about a login, or about a step of an exchange of AUTH packets. Returns NULL if none has decided, or if one `waits`. */
static Answer *ask_each(Realm *realm, const Head *head, int event, Call *call, int *waits)
{
    bool extended = event != EVENT_BASIC_AUTH, deferred = false;
    Answer *answer = NULL;
    for(int i = 0; i < realm->n && answer == NULL && !*waits; i++){
        if(!plugin_wants(realm->plugins[i], event)) continue;
        plugin_call(realm->plugins[i], event, call);
        if(undecided(call->result) || (extended && call->result == ERR_NOT_SUPPORTED)) deferred = deferred || call->result != ERR_PLUGIN_IGNORE;
        else if(call->result == ERR_AUTH_DELAYED && !extended) *waits = WAITS;
        else answer = login_answer(head, realm->plugins[i], call, extended);
        call_clear(call);
    }
    if(answer == NULL && !*waits && !extended && !deferred && realm->decides_logins) answer = answer_new(head, ASK_CONNECT, NOT_CHECKED, NULL, NULL, 0, NULL, 0);
    return answer;
}

/* ---------------------------------------------------------------- kinds of requests */

static int pauses;

/* Sets whether outcomes of logins are reported, and whether the control plane is asked about a pause before each login. */
EXPORT void mosq_shim_pauses(int mode) { __atomic_store_n(&pauses, mode, __ATOMIC_RELAXED); }

/* Reports that a plugin has allowed or refused a login: failures cause pauses (mosq/auth/backoff.py). */
static void outcome_put(const char *username, const char *address, bool good)
{
    Action *action = action_new(DO_OUTCOME);
    if(action == NULL) return;
    action->level = good;
    action->text = strdup(username);
    action->client_id = strdup(address == NULL ? "" : address);
    if(action->text != NULL && action->client_id != NULL) action_put(action);
    else mosq_shim_action_free(action);
}

static Answer *ask_login(Realm *realm, const Head *head, const View *fields, int *waits)
{
    Call call;
    Texts texts;
    Answer *answer;
    bool extended = fields[4].p != NULL;
    View data = extended ? fields[5] : fields[2], named[6] = {fields[0], fields[1], fields[3], fields[4], fields[8], data};
    int mode = extended || fields[1].p == NULL ? NO_PAUSES : __atomic_load_n(&pauses, __ATOMIC_RELAXED);
    if(mode == ASK_PAUSES && *waits != NO_PAUSE && realm_wants(realm, EVENT_BASIC_AUTH)){
        *waits = WAITS_FOR_PAUSE;
        return NULL;
    }
    *waits = 0;
    memset(&call, 0, sizeof(call));
    if(!texts_take(&texts, named, 6)) return &without_memory;
    call.client_id = texts.text[0];
    call.username = texts.text[1];
    call.address = texts.text[2];
    call.method = texts.text[3];
    call.certificate = texts.text[4];
    call.data = (uint8_t *)texts.text[5];
    call.data_n = data.n;
    facts_take(&call, head, fields, 9);
    call.login = head->handle;
    answer = ask_each(realm, head, extended ? EVENT_EXT_AUTH_START : EVENT_BASIC_AUTH, &call, waits);
    if(mode != NO_PAUSES && answer != NULL && answer != &without_memory && answer->verdict != NOT_CHECKED) outcome_put(call.username, call.address, answer->verdict == 0);
    texts_wipe(&texts);
    return answer;
}

static Answer *ask_auth(Realm *realm, const Head *head, const View *fields, int *waits)
{
    Call call;
    Texts texts;
    Answer *answer;
    int event;
    View named[5] = {fields[0], fields[2], fields[3], fields[4], fields[1]};
    memset(&call, 0, sizeof(call));
    if(!texts_take(&texts, named, 5)) return &without_memory;
    call.method = texts.text[0];
    call.client_id = texts.text[1];
    call.username = texts.text[2];
    call.address = texts.text[3];
    call.data = (uint8_t *)texts.text[4];
    call.data_n = fields[1].n;
    facts_take(&call, head, fields, 5);
    event = head->a && !client_exchanging(call.facts.connection) ? EVENT_EXT_AUTH_START : EVENT_EXT_AUTH_CONTINUE;
    answer = ask_each(realm, head, event, &call, waits);
    client_exchange(call.facts.connection, answer != NULL && answer->verdict == CODE_CONTINUE);
    texts_wipe(&texts);
    return answer;
}

/* What becomes of a filter that may be subscribed to, or unsubscribed from. Returns 0 if it is denied. */
static bool subscribing(Realm *realm, int event, Call *call, char **filter, int *options)
{
    int result;
    for(int i = 0; i < realm->n; i++){
        if(!plugin_wants(realm->plugins[i], event)) continue;
        call->topic = *filter != NULL ? *filter : call->topic;
        call->qos = *options;
        result = plugin_call(realm->plugins[i], event, call);
        *options = call->new_qos;
        if(result == ERR_SUCCESS && call->new_topic != NULL){
            free(*filter);
            *filter = call->new_topic;
            call->new_topic = NULL;
        }
        call_clear(call);
        if(result != ERR_SUCCESS) return false;
    }
    return true;
}

static Answer *ask_acl(Realm *realm, const Head *head, const View *fields)
{
    Call call;
    Texts texts;
    Answer *answer = NULL;
    char *filter = NULL;
    int result = ERR_PLUGIN_IGNORE, options = head->b, verdict = 1, event = head->a == ACCESS_SUBSCRIBE ? EVENT_SUBSCRIBE : EVENT_UNSUBSCRIBE;
    memset(&call, 0, sizeof(call));
    if(!texts_take(&texts, fields, head->n_fields > 5 ? 5 : 4)) return &without_memory;
    call.client_id = texts.text[0];
    call.username = texts.text[1];
    call.address = texts.text[2];
    call.topic = texts.text[3];
    call.access = head->a;
    call.qos = head->b & 3;
    call.retain = head->c;
    if(head->n_fields > 5){
        call.data = (uint8_t *)texts.text[4];
        call.data_n = fields[4].n;
        call.properties = fields[5].p;
        call.properties_n = fields[5].n;
    }
    facts_take(&call, head, fields, 6);
    for(int i = 0; i < realm->n && undecided(result); i++){
        if(plugin_wants(realm->plugins[i], EVENT_ACL_CHECK)) result = decided(result, plugin_call(realm->plugins[i], EVENT_ACL_CHECK, &call));
    }
    if(undecided(result) && realm->undecided){
        verdict = result == ERR_PLUGIN_DEFER ? -1 : realm->undecided;
        result = ERR_SUCCESS;
    }
    if(result != ERR_SUCCESS){
        if(!undecided(result)) answer = answer_new(head, ASK_ACL, 0, NULL, NULL, 0, NULL, 0);
    }else if(head->a < ACCESS_SUBSCRIBE){
        answer = answer_new(head, ASK_ACL, verdict, NULL, NULL, 0, NULL, 0);
    }else if(!subscribing(realm, event, &call, &filter, &options)){
        answer = answer_new(head, ASK_ACL, 0, NULL, NULL, 0, NULL, 0);
    }else{
        answer = answer_new(head, ASK_ACL, verdict, filter != NULL || options != head->b ? filter != NULL ? filter : texts.text[3] : NULL, NULL, 0, NULL, 0);
        answer->qos = (uint8_t)options;
    }
    free(filter);
    free(texts.bytes);
    return answer;
}

/* A message that was changed, between two plugins. */
typedef struct { char *topic; uint8_t *data, *properties; bool has_properties; } Changed;

static void changed_take(Changed *changed, Call *call)
{
    if(call->new_topic != NULL){
        free(changed->topic);
        call->topic = changed->topic = call->new_topic;
        call->new_topic = NULL;
    }
    if(call->changed & 2){
        free(changed->data);
        call->data = changed->data = call->new_data;
        call->data_n = call->new_data_n;
        call->new_data = NULL;
    }
    if(call->properties_changed){
        free(changed->properties);
        call->properties = changed->properties = call->new_properties;
        call->properties_n = call->new_properties_n;
        call->new_properties = NULL;
        changed->has_properties = true;         /* also if none is left */
    }
    call->changed = call->properties_changed = 0;
}

static Answer *ask_message(Realm *realm, const Head *head, const View *fields)
{
    Call call;
    Texts texts;
    Changed changed = {NULL, NULL, NULL, false};
    Answer *answer = NULL;
    int event = head->kind == ASK_MESSAGE_IN ? EVENT_MESSAGE_IN : EVENT_MESSAGE_OUT, asked = 0, result = ERR_SUCCESS;
    memset(&call, 0, sizeof(call));
    if(!texts_take(&texts, fields, 4)) return &without_memory;
    call.client_id = texts.text[0];
    call.username = texts.text[1];
    call.address = texts.text[2];
    call.topic = texts.text[3];
    call.qos = head->b;
    call.retain = head->c;
    call.data = fields[4].p;
    call.data_n = fields[4].n;
    call.properties = fields[5].p;
    call.properties_n = fields[5].n;
    facts_take(&call, head, fields, 6);
    for(int i = 0; i < realm->n && result == ERR_SUCCESS; i++){
        if(!plugin_wants(realm->plugins[i], event)) continue;
        asked++;
        result = plugin_call(realm->plugins[i], event, &call);
        if(result == ERR_SUCCESS){
            changed_take(&changed, &call);
            call.retain = call.new_retain;
            if(event == EVENT_MESSAGE_OUT) call.qos = call.new_qos;
        }
        call_clear(&call);
    }
    if(asked && result != ERR_SUCCESS){
        answer = answer_new(head, head->kind, 0, NULL, NULL, 0, NULL, 0);
    }else if(asked){
        answer = answer_new(head, head->kind, 1, call.topic, call.data == NULL ? (const void *)"" : call.data, call.data_n,
                            !changed.has_properties ? NULL : changed.properties == NULL ? (const void *)"" : changed.properties,
                            changed.has_properties ? call.properties_n : 0);
        answer->qos = (uint8_t)call.qos;
        answer->retain = call.retain != 0;
    }
    free(changed.topic);
    free(changed.data);
    free(changed.properties);
    free(texts.bytes);
    return answer;
}

static int reason_of(uint64_t about)
{
    uint32_t reason = (uint32_t)about;
    if(reason == 0x100 || reason == 0x101) return 0;
    if(reason == 0x102) return 7;
    if(reason >= 0x1000) return ERR_ERRNO;
    return reason == 0x81 ? ERR_MALFORMED_PACKET : reason == 0x82 ? ERR_PROTOCOL : reason == 0x8D ? 19 : (int)reason;
}

/* Returns false if there is no memory. */
static bool note_event(Realm *realm, const Head *head, const View *fields)
{
    Call call;
    Texts texts;
    int event = head->a == 0 ? EVENT_CONNECT : head->handle >> OFFLINE_BIT ? EVENT_CLIENT_OFFLINE : EVENT_DISCONNECT, asked = 0;
    if(head->a > 1) return true;        /* SUBSCRIBE and UNSUBSCRIBE are asked before they happen */
    memset(&call, 0, sizeof(call));
    facts_take(&call, head, fields, 3);
    if(!texts_take(&texts, fields, 3)){
        if(head->a == 1) mosq_shim_client_gone(call.facts.connection);
        return false;
    }
    call.client_id = texts.text[0];
    call.username = texts.text[1];
    call.address = head->a == 0 ? texts.text[2] : NULL;
    call.reason = reason_of(head->handle);
    for(int i = 0; i < realm->n; i++){
        if(!plugin_wants(realm->plugins[i], event)) continue;
        asked++;
        plugin_call(realm->plugins[i], event, &call);
    }
    if(!asked && head->a == 0) mosq_shim_client_known(&call);
    else if(!asked) mosq_shim_client_gone(call.facts.connection);
    free(texts.bytes);
    return true;
}

/* Refuses a request for which there was no memory. If there is none for this answer either, the request gets none, and the data plane
 * refuses it after auth_timeout. */
static Answer *refused(const Head *head, int *waits)
{
    bool login = head->kind == ASK_CONNECT || head->kind == ASK_AUTH;
    int verdict = login ? CODE_SERVER_BUSY : head->kind == ASK_ACL ? 0 : NOT_ASKED;
    Answer *answer = answer_new(head, login ? ASK_CONNECT : head->kind, verdict, NULL, NULL, 0, NULL, 0);
    *waits = answer == &without_memory ? WAITS : 0;
    return *waits ? NULL : answer;
}

/* Asks the plugins of a realm. Returns an answer, which the caller frees with free(); NULL: none. `waits`: see native_ask_fn. */
EXPORT Answer *mosq_shim_ask(Realm *realm, const Head *head, const View *fields, int *waits)
{
    static Seldom seldom;
    Answer *answer = NULL;
    switch(head->kind){
        case ASK_CONNECT: answer = ask_login(realm, head, fields, waits); break;
        case ASK_AUTH: answer = ask_auth(realm, head, fields, waits); break;
        case ASK_ACL: answer = ask_acl(realm, head, fields); break;
        case ASK_MESSAGE_IN:
        case ASK_MESSAGE_OUT: answer = ask_message(realm, head, fields); break;
        case ASK_EVENT:
            if(!note_event(realm, head, fields)) line_seldom(&seldom, LEVEL_WARNING, "Warning: Plugins get no event of a client: no memory");
            return NULL;
        default: return NULL;
    }
    if(answer != &without_memory) return answer;
    line_seldom(&seldom, LEVEL_WARNING, "Warning: A request of a client is refused: no memory to ask a plugin");
    return refused(head, waits);
}
