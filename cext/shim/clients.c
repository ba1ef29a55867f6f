/* What plugins see of clients: an opaque struct for each connection, which lives from the first call about it until a while after
 * its end, because a plugin may hold it a little longer.
 *
 * The struct repeats what the data plane sent with the last request about the client. Strings are replaced and not changed: a
 * callback in another thread may read the old one, which stays for KEPT_S.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 256, KEPT_S = 30, LOGIN_S = 120, DELAYED_S = 3600, ALONE_S = 60, SWEEP = 4, LOGIN_BUCKETS = 4096, OLD_MAX = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mosquitto **by_connection, **by_name;
static size_t n_buckets, n_clients, swept;
static struct mosquitto *logins[LOGIN_BUCKETS];         /* that a plugin may complete, by their client id */
Recent recent_clients[RECENT];

static size_t hash_number(uint64_t number) { return (size_t)(number * 0x9E3779B97F4A7C15u >> 20); }

static size_t hash_text(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for(; *text; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001B3u;
    return hash_number(hash);
}

static struct mosquitto **name_slot(const char *id) { return &by_name[hash_text(id) & (n_buckets - 1)]; }

static void grow(void)
{
    size_t old = n_buckets, n = old ? old * 2 : BUCKETS_MIN;
    struct mosquitto **connections = calloc(n, sizeof(*connections)), **names = calloc(n, sizeof(*names)), **were = by_connection;
    struct mosquitto *one, *next, **slot;
    if(connections == NULL || names == NULL){
        free(connections);
        free(names);
        return;
    }
    free(by_name);
    by_connection = connections;
    by_name = names;
    n_buckets = n;
    for(size_t i = 0; i < old; i++){
        for(one = were[i]; one != NULL; one = next){
            next = one->next;
            slot = &by_connection[hash_number(one->connection) & (n - 1)];
            one->next = *slot;
            *slot = one;
            if(one->state == CLIENT_CONNECTED && one->id != NULL){
                slot = name_slot(one->id);
                one->next_named = *slot;
                *slot = one;
            }
        }
    }
    free(were);
}

static size_t login_bucket(const char *id) { return hash_text(id) & (LOGIN_BUCKETS - 1); }

static void login_list(struct mosquitto *client)
{
    if(client->listed || client->id == NULL) return;
    client->bucket = login_bucket(client->id);
    client->next_named = logins[client->bucket];
    logins[client->bucket] = client;
    client->listed = true;
}

static void login_unlist(struct mosquitto *client)
{
    struct mosquitto **slot;
    if(!client->listed) return;
    for(slot = &logins[client->bucket]; *slot != client; slot = &(*slot)->next_named);
    *slot = client->next_named;
    client->next_named = NULL;
    client->listed = false;
}

static void release(struct mosquitto *client)
{
    Old *old;
    login_unlist(client);
    while((old = client->old) != NULL){
        client->old = old->next;
        free(old->text);
        free(old);
    }
    free(client->id);
    free(client->username);
    free(client->address);
    free(client->certificate);
    free(client->method);
    free(client);
}

static void unname(struct mosquitto *client)
{
    struct mosquitto **slot;
    if(client->state != CLIENT_CONNECTED || client->id == NULL) return;
    for(slot = name_slot(client->id); *slot != NULL; slot = &(*slot)->next_named){
        if(*slot == client){
            *slot = client->next_named;
            client->next_named = NULL;
            return;
        }
    }
}

void client_remember(struct mosquitto *client)
{
    Recent *place = recent_of(client->connection);
    pthread_mutex_lock(&lock);
    if(client->connection && client->state == CLIENT_CONNECTED){
        place->connection = client->connection;
        __atomic_store_n(&place->client, client, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
}

/* Notes that a client is gone. Called with the lock held. */
static void gone(struct mosquitto *client)
{
    Recent *place = recent_of(client->connection);
    if(place->client == client) __atomic_store_n(&place->client, NULL, __ATOMIC_RELAXED);
    client->state = CLIENT_GONE;
}

static bool is_over(const struct mosquitto *client, long now)
{
    if(client->pins) return false;
    if(client->state == CLIENT_GONE) return now - client->used_s > KEPT_S;
    return client->state != CLIENT_CONNECTED && now - client->used_s > (client->state == CLIENT_DELAYED ? DELAYED_S : LOGIN_S);
}

static void sweep(void)
{
    struct mosquitto **slot, *client;
    long now = now_s();
    for(int i = 0; i < SWEEP; i++){
        swept = (swept + 1) & (n_buckets - 1);
        slot = &by_connection[swept];
        while((client = *slot) != NULL){
            if(is_over(client, now)){
                *slot = client->next;
                n_clients--;
                release(client);
            }else{
                slot = &client->next;
            }
        }
    }
}

/* Frees texts that were replaced long ago, unless another call than the caller's uses the client. */
static void forget_old(struct mosquitto *client)
{
    Old **slot = &client->old, *old;
    long now = now_s();
    if(client->pins > (within_event() >= 0)) return;
    while((old = *slot) != NULL){
        if(now - old->since_s <= KEPT_S){
            slot = &old->next;
            continue;
        }
        *slot = old->next;
        client->n_old--;
        free(old->text);
        free(old);
    }
}

/* Takes a text from the replaced ones, so that one that comes again and again takes no memory; NULL: it is not there. `place` gets its
 * place, for the text that it replaces. */
static char *take_old(struct mosquitto *client, const char *value, Old **place)
{
    Old **slot = &client->old, *old;
    while((old = *slot) != NULL && strcmp(old->text, value) != 0) slot = &old->next;
    if(old == NULL) return NULL;
    *slot = old->next;
    client->n_old--;
    *place = old;
    return old->text;
}

/* Replaces a text of a client. Returns false if there is no memory. */
static bool set_text(struct mosquitto *client, char **text, const char *value)
{
    Old *old = NULL;
    char *next = NULL;
    if(value == NULL ? *text == NULL : *text != NULL && strcmp(*text, value) == 0) return true;
    forget_old(client);
    if(value != NULL){
        next = take_old(client, value, &old);
        if(next == NULL && (next = strdup(value)) == NULL) return false;
    }
    if(*text == NULL){
        free(old);
    }else if(old == NULL && (old = malloc(sizeof(Old))) == NULL){
        free(next);
        return false;
    }else{
        old->text = *text;
        old->since_s = now_s();
        old->next = client->old;
        client->old = old;
        client->n_old++;
    }
    __atomic_store_n(text, next, __ATOMIC_RELEASE);
    return true;
}

/* The same for a plugin. One that changes texts without an end must not fill the memory with the replaced ones. */
static bool set_name(struct mosquitto *client, char **text, const char *value)
{
    static Seldom seldom;
    if(client->n_old < OLD_MAX) return set_text(client, text, value);
    forget_old(client);
    if(client->n_old < OLD_MAX) return set_text(client, text, value);
    line_seldom(&seldom, LEVEL_WARNING, "Warning: A plugin has changed the names of a client %d times within %d s, which is refused", OLD_MAX, KEPT_S);
    return false;
}

static bool is_login(int event) { return event == EVENT_BASIC_AUTH || event == EVENT_EXT_AUTH_START || event == EVENT_EXT_AUTH_CONTINUE; }

/* Takes over what the call knows about the client. Called with the lock held. Returns false if there is no memory: a callback must not
 * decide about another name than the client's. */
static bool update(struct mosquitto *client, const Call *call, int event)
{
    struct mosquitto **slot;
    uint8_t clean = client->facts.clean_start;
    bool good = true;
    login_unlist(client);
    if(client->state == CLIENT_DELAYED) client->state = CLIENT_NEW;
    if(call->facts.version){
        client->facts = call->facts;
        if(call->facts.clean_start == 2) client->facts.clean_start = clean;
    }
    if(call->client_id != NULL && call->client_id[0] && !client->id_set && client->state != CLIENT_CONNECTED) good = set_text(client, &client->id, call->client_id);
    if(!client->user_set && (call->username != NULL || !is_login(event))) good = set_text(client, &client->username, call->username) && good;
    if(call->address != NULL && call->address[0]) good = set_text(client, &client->address, call->address) && good;
    if(call->certificate != NULL) good = set_text(client, &client->certificate, call->certificate) && good;
    if(call->method != NULL) good = set_text(client, &client->method, call->method) && good;
    if(call->login) client->login = call->login;
    client->used_s = now_s();
    if(!is_login(event) && client->connection && client->state < CLIENT_CONNECTED){
        client->user_set = client->id_set = false;              /* the data plane knows them now */
        if(call->client_id != NULL) good = set_text(client, &client->id, call->client_id) && good;
        good = set_text(client, &client->username, call->username) && good;
        client->state = CLIENT_CONNECTED;
        if(client->id != NULL){
            slot = name_slot(client->id);
            client->next_named = *slot;
            *slot = client;
        }
    }
    return good;
}

/* Returns the client of a call, for its duration; NULL: no memory. */
struct mosquitto *client_pin(const Call *call, int event)
{
    uint64_t connection = call->facts.connection;
    struct mosquitto *client = NULL, **slot;
    thread_watch();
    pthread_mutex_lock(&lock);
    if(n_clients >= n_buckets) grow();
    if(n_buckets == 0){
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    slot = &by_connection[hash_number(connection) & (n_buckets - 1)];
    if(connection){
        for(client = *slot; client != NULL && client->connection != connection; client = client->next);
    }
    if(client == NULL && (client = calloc(1, sizeof(*client))) != NULL){
        client->connection = connection;
        client->facts.clean_start = 1;
        if(connection){
            sweep();
            client->next = *slot;
            *slot = client;
            n_clients++;
        }
    }
    if(client != NULL && !update(client, call, event)){
        if(connection == 0) release(client);
        client = NULL;
    }
    if(client != NULL){
        if(event == EVENT_BASIC_AUTH){
            client->completed = false;
            login_list(client);
        }
        client->pins++;
    }
    pthread_mutex_unlock(&lock);
    return client;
}

void client_unpin(struct mosquitto *client, int event, int result)
{
    if(client == NULL) return;
    pthread_mutex_lock(&lock);
    client->pins--;
    if(event == EVENT_BASIC_AUTH){
        if(result == ERR_AUTH_DELAYED && client->state == CLIENT_NEW && client->listed) client->state = CLIENT_DELAYED;
        else login_unlist(client);
    }
    if(is_login(event) && client->state == CLIENT_NEW && !client->completed && result != ERR_SUCCESS && result != ERR_AUTH_CONTINUE && result != ERR_PLUGIN_DEFER
            && result != ERR_PLUGIN_IGNORE && result != ERR_NOT_SUPPORTED) gone(client);        /* refused */
    if(is_login(event) && client->state == CLIENT_CONNECTED && result != ERR_AUTH_CONTINUE) client->user_set = false;      /* its next name may come from elsewhere */
    if(event == EVENT_DISCONNECT || event == EVENT_CLIENT_OFFLINE){
        unname(client);
        gone(client);
    }
    if(client->connection == 0) release(client);        /* an offline session: only this call has seen it */
    pthread_mutex_unlock(&lock);
}

static struct mosquitto *find_connection(uint64_t connection)
{
    struct mosquitto *client = NULL;
    if(n_buckets && connection){
        client = by_connection[hash_number(connection) & (n_buckets - 1)];
        while(client != NULL && client->connection != connection) client = client->next;
    }
    return client;
}

bool client_exchanging(uint64_t connection)
{
    struct mosquitto *client;
    bool found;
    pthread_mutex_lock(&lock);
    client = find_connection(connection);
    found = client != NULL && client->exchanging;
    pthread_mutex_unlock(&lock);
    return found;
}

void client_exchange(uint64_t connection, bool begun)
{
    struct mosquitto *client;
    pthread_mutex_lock(&lock);
    client = find_connection(connection);
    if(client != NULL) client->exchanging = begun;
    pthread_mutex_unlock(&lock);
}

EXPORT int mosq_shim_client_is_known(uint64_t connection)
{
    struct mosquitto *client;
    pthread_mutex_lock(&lock);
    client = find_connection(connection);
    pthread_mutex_unlock(&lock);
    return client != NULL && client->state != CLIENT_GONE;
}

/* Notes the end of a connection of which no plugin wants the event. */
EXPORT void mosq_shim_client_gone(uint64_t connection)
{
    struct mosquitto *client;
    pthread_mutex_lock(&lock);
    client = find_connection(connection);
    if(client != NULL){
        login_unlist(client);
        unname(client);
        gone(client);
        client->used_s = now_s();
    }
    pthread_mutex_unlock(&lock);
}

/* Notes a client that has connected. */
EXPORT void mosq_shim_client_known(const Call *call)
{
    client_unpin(client_pin(call, EVENT_CONNECT), EVENT_CONNECT, 0);
}

/* ---------------------------------------------------------------- functions for plugins */

EXPORT struct mosquitto *mosquitto_client(const char *id)
{
    struct mosquitto *client = NULL;
    if(id == NULL || id[0] == 0) return NULL;
    pthread_mutex_lock(&lock);
    if(n_buckets){
        for(client = *name_slot(id); client != NULL && strcmp(client->id, id) != 0; client = client->next_named);
    }
    pthread_mutex_unlock(&lock);
    return client;
}

EXPORT const char *mosquitto_client_address(const struct mosquitto *client) { return client == NULL ? NULL : client->address; }
EXPORT const char *mosquitto_client_id(const struct mosquitto *client) { return client == NULL ? NULL : client->id; }
EXPORT const char *mosquitto_client_username(const struct mosquitto *client) { return client == NULL ? NULL : client->username; }
EXPORT int mosquitto_client_port(const struct mosquitto *client) { return client == NULL ? 0 : client->facts.listener_port; }
EXPORT bool mosquitto_client_clean_session(const struct mosquitto *client) { return client == NULL || client->facts.clean_start != 0; }
EXPORT int mosquitto_client_keepalive(const struct mosquitto *client) { return client == NULL ? -1 : client->facts.keepalive; }
EXPORT int mosquitto_client_protocol_version(const struct mosquitto *client) { return client == NULL ? 0 : client->facts.version; }
EXPORT int mosquitto_client_sub_count(const struct mosquitto *client) { return client == NULL ? 0 : (int)client->facts.subscriptions; }

EXPORT int mosquitto_client_protocol(const struct mosquitto *client)
{
    return client != NULL && client->facts.websockets ? PROTOCOL_WEBSOCKETS : PROTOCOL_MQTT;
}

EXPORT unsigned mosquitto_client_id_hashv(const struct mosquitto *client)
{
    return client == NULL || client->id == NULL ? 0 : (unsigned)hash_text(client->id);
}

/* Returns an X509* of the process's OpenSSL, which the plugin frees; NULL: no certificate, or no OpenSSL is loaded. */
EXPORT void *mosquitto_client_certificate(const struct mosquitto *client)
{
    void *(*memory)(const void *, int), *(*read)(void *, void **, void *, void *), *crypto, *bio, *certificate = NULL;
    int (*end)(void *);
    if(client == NULL || client->certificate == NULL) return NULL;
    crypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_NOLOAD);
    if(crypto == NULL) crypto = dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_NOLOAD);
    if(crypto == NULL) return NULL;
    *(void **)&memory = dlsym(crypto, "BIO_new_mem_buf");
    *(void **)&read = dlsym(crypto, "PEM_read_bio_X509");
    *(void **)&end = dlsym(crypto, "BIO_free");
    if(memory != NULL && read != NULL && end != NULL && (bio = memory(client->certificate, -1)) != NULL){
        certificate = read(bio, NULL, NULL, NULL);
        end(bio);
    }
    dlclose(crypto);
    return certificate;
}

static bool in_login(void) { return is_login(within_event()); }

EXPORT int mosquitto_set_username(struct mosquitto *client, const char *username)
{
    static Seldom seldom;
    bool done;
    if(client == NULL) return ERR_INVAL;
    if(username != NULL && mosquitto_validate_utf8(username, (int)strlen(username)) != 0) return ERR_MALFORMED_UTF8;
    if(!in_login()){
        line_seldom(&seldom, LEVEL_WARNING, "Warning: mosquitto_set_username works only while a client logs in");
        return ERR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&lock);
    done = set_name(client, &client->username, username);
    client->user_set = client->user_set || done;
    pthread_mutex_unlock(&lock);
    return done ? ERR_SUCCESS : ERR_NOMEM;
}

EXPORT int mosquitto_set_clientid(struct mosquitto *client, const char *id)
{
    static Seldom seldom;
    int result = ERR_NOT_SUPPORTED;
    bool listed;
    if(client == NULL || id == NULL || id[0] == 0) return ERR_INVAL;
    if(in_login() && mosquitto_validate_utf8(id, (int)strlen(id)) != 0) return ERR_INVAL;
    pthread_mutex_lock(&lock);
    if(in_login() && client->state == CLIENT_NEW){         /* the id of a connected client is its place in the table of names */
        listed = client->listed;
        login_unlist(client);
        result = set_name(client, &client->id, id) ? ERR_SUCCESS : ERR_NOMEM;
        if(listed) login_list(client);
        client->id_set = client->id_set || result == ERR_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    if(result != ERR_NOT_SUPPORTED) return result;
    if(mosquitto_client(id) != NULL) return ERR_ALREADY_EXISTS;
    line_seldom(&seldom, LEVEL_WARNING, "Warning: mosquitto_set_clientid works only while a client logs in");
    return result;
}

EXPORT int mosquitto_apply_on_all_clients(int (*call)(const struct mosquitto *, void *), void *context)
{
    struct mosquitto **all = NULL, *one;
    size_t n = 0, i;
    int result = ERR_SUCCESS;
    if(call == NULL) return ERR_INVAL;
    pthread_mutex_lock(&lock);
    all = calloc(n_clients + 1, sizeof(*all));
    for(i = 0; all != NULL && i < n_buckets; i++){
        for(one = by_connection[i]; one != NULL; one = one->next){
            if(one->state == CLIENT_CONNECTED){
                one->pins++;
                all[n++] = one;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    if(all == NULL) return ERR_NOMEM;
    for(i = 0; i < n && result == ERR_SUCCESS; i++) result = call(all[i], context);
    pthread_mutex_lock(&lock);
    for(i = 0; i < n; i++) all[i]->pins--;
    pthread_mutex_unlock(&lock);
    free(all);
    return result;
}

static int kick(int kind, const char *name, bool with_will)
{
    Action *action = action_new(kind);
    if(action == NULL) return ERR_NOMEM;
    action->level = with_will;
    if(name != NULL && (action->text = strdup(name)) == NULL){
        free(action);
        return ERR_NOMEM;
    }
    action_put(action);
    return ERR_SUCCESS;
}

static bool workers;         /* other processes have clients, too */

EXPORT void mosq_shim_workers(int there) { workers = there; }

EXPORT int mosquitto_kick_client_by_clientid(const char *id, bool with_will)
{
    if(id != NULL && !workers && mosquitto_client(id) == NULL) return ERR_NOT_FOUND;
    return kick(DO_KICK_ID, id, with_will);
}

EXPORT int mosquitto_kick_client_by_username(const char *username, bool with_will) { return kick(DO_KICK_USER, username, with_will); }

/* Returns the login with this id that waits; else one whose callback runs: another thread may complete it before that returns. */
static struct mosquitto *find_login(const char *id)
{
    struct mosquitto *one, *found = NULL;
    for(one = logins[login_bucket(id)]; one != NULL; one = one->next_named){
        if(strcmp(one->id, id) != 0) continue;
        if(one->state == CLIENT_DELAYED) return one;
        found = one;
    }
    return found;
}

/* Returns whether another login with the id of this one waits for a plugin. The plugin completes a login by its id: the second one
 * might get the answer of the first one, and is refused, as in Mosquitto. */
bool client_waits_twice(const struct mosquitto *client)
{
    struct mosquitto *one = NULL;
    pthread_mutex_lock(&lock);
    if(client->id != NULL){
        one = find_login(client->id);
        if(one == client || (one != NULL && (one->state != CLIENT_DELAYED || now_s() - one->used_s > ALONE_S))) one = NULL;
    }
    pthread_mutex_unlock(&lock);
    return one != NULL;
}

EXPORT void mosquitto_complete_basic_auth(const char *id, int result)
{
    struct mosquitto *one;
    Action *action = id == NULL ? NULL : action_new(DO_COMPLETE);
    if(action == NULL) return;
    pthread_mutex_lock(&lock);
    one = find_login(id);
    if(one != NULL){
        login_unlist(one);
        one->state = CLIENT_NEW;
        one->completed = true;
        one->used_s = now_s();          /* else it may be over at once */
        action->connection = one->connection;
        action->login = one->login;
        action->level = result;
        action->text = one->username == NULL ? NULL : strdup(one->username);
        action->client_id = one->address == NULL ? NULL : strdup(one->address);
    }
    pthread_mutex_unlock(&lock);
    if(one != NULL) action_put(action);
    else mosq_shim_action_free(action);
}

static char *location;

EXPORT const char *mosquitto_persistence_location(void) { return location; }

/* A plugin may hold the text of before. */
EXPORT void mosq_shim_location(const char *path)
{
    if(location == NULL || path == NULL ? location != path : strcmp(location, path) != 0) location = path == NULL ? NULL : strdup(path);
}

EXPORT int mosquitto_broker_node_id_set(uint16_t id)
{
    (void)id;           /* numbers of stored messages belong to mosq's own store */
    return ERR_SUCCESS;
}
