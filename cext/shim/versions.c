/* The functions of a plugin by its interface version. Versions 2 to 4 in terms of version 5: a plugin exports fixed names, and a
 * callback of ours for each event calls them.
 *
 * Version 2 passes names instead of clients; 4 may leave functions out; UNSUBSCRIBE (and in 2 also SUBSCRIBE) is not checked.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int (*Init5)(Plugin *, void **, struct mosquitto_opt *, int);
typedef int (*Init)(void **, struct mosquitto_opt *, int);
typedef int (*Cleanup)(void *, struct mosquitto_opt *, int);
typedef int (*Security)(void *, struct mosquitto_opt *, int, bool);
typedef int (*Acl2)(void *, const char *, const char *, const char *, int);
typedef int (*Acl)(void *, int, struct mosquitto *, const struct mosquitto_acl_msg *);
typedef int (*Basic2)(void *, const char *, const char *);
typedef int (*Basic)(void *, struct mosquitto *, const char *, const char *);
typedef int (*Psk2)(void *, const char *, const char *, char *, int);
typedef int (*Psk)(void *, struct mosquitto *, const char *, const char *, char *, int);
typedef int (*Start)(void *, struct mosquitto *, const char *, bool, const void *, uint16_t, void **, uint16_t *);
typedef int (*Continue)(void *, struct mosquitto *, const char *, const void *, uint16_t, void **, uint16_t *);

static int on_basic_auth(int event, void *data, void *userdata)
{
    Plugin *p = userdata;
    struct mosquitto_evt_basic_auth *d = data;
    (void)event;
    if(p->version == 2) return ((Basic2)p->functions[F_BASIC])(p->userdata, d->username, d->password);
    return ((Basic)p->functions[F_BASIC])(p->userdata, d->client, d->username, d->password);
}

static bool is_special(const char *name) { return name != NULL && strpbrk(name, "+#/") != NULL; }

static int on_acl_check(int event, void *data, void *userdata)
{
    Plugin *p = userdata;
    struct mosquitto_evt_acl_check *d = data;
    struct mosquitto_acl_msg message = {d->topic, d->payload, (long)d->payloadlen, d->qos, d->retain};
    (void)event;
    if(p->deny_special && is_special(d->client->username)){
        line_put(LEVEL_NOTICE, "ACL denying access to client with dangerous username \"%s\"", d->client->username);
        return ERR_ACL_DENIED;
    }
    if(p->deny_special && is_special(d->client->id)){
        line_put(LEVEL_NOTICE, "ACL denying access to client with dangerous client id \"%s\"", d->client->id);
        return ERR_ACL_DENIED;
    }
    if(d->access == ACCESS_UNSUBSCRIBE || (p->version == 2 && d->access == ACCESS_SUBSCRIBE)) return ERR_SUCCESS;
    if(p->version == 2) return ((Acl2)p->functions[F_ACL])(p->userdata, d->client->id, d->client->username, d->topic, d->access);
    return ((Acl)p->functions[F_ACL])(p->userdata, d->access, d->client, &message);
}

static int on_psk_key(int event, void *data, void *userdata)
{
    Plugin *p = userdata;
    struct mosquitto_evt_psk_key *d = data;
    (void)event;
    if(p->version == 2) return ((Psk2)p->functions[F_PSK])(p->userdata, d->hint, d->identity, d->key, d->max_key_len);
    return ((Psk)p->functions[F_PSK])(p->userdata, d->client, d->hint, d->identity, d->key, d->max_key_len);
}

static int on_auth(int event, void *data, void *userdata)
{
    Plugin *p = userdata;
    struct mosquitto_evt_extended_auth *d = data;
    if(event == EVENT_EXT_AUTH_START){
        return ((Start)p->functions[F_START])(p->userdata, d->client, d->auth_method, false, d->data_in, d->data_in_len, &d->data_out, &d->data_out_len);
    }
    return ((Continue)p->functions[F_CONTINUE])(p->userdata, d->client, d->auth_method, d->data_in, d->data_in_len, &d->data_out, &d->data_out_len);
}

static int on_reload(int event, void *data, void *userdata)
{
    Plugin *p = userdata;
    int result = ((Security)p->functions[F_SECURITY_CLEANUP])(p->userdata, p->options, p->n_options, true);
    (void)event;
    (void)data;
    return result ? result : ((Security)p->functions[F_SECURITY_INIT])(p->userdata, p->options, p->n_options, true);
}

static const char *const NAMES[] = {
    "mosquitto_auth_plugin_init", "mosquitto_auth_plugin_cleanup", "mosquitto_auth_security_init", "mosquitto_auth_security_cleanup",
    "mosquitto_auth_acl_check", "mosquitto_auth_unpwd_check", "mosquitto_auth_psk_key_get", "mosquitto_auth_start", "mosquitto_auth_continue",
};

/* Finds the functions that a plugin of this version must have, without a call of them. Returns 0, or the exit status of the broker. */
int version_functions(Plugin *p)
{
    int needed = p->version == 4 ? F_ACL : F_PSK;
    if(p->version == 5){
        p->functions[F_INIT] = dlsym(p->library, "mosquitto_plugin_init");
        if(p->functions[F_INIT] != NULL) return ERR_SUCCESS;
        line_put(LEVEL_ERROR, "Error: Unable to load plugin function mosquitto_plugin_init().");
        line_put(LEVEL_ERROR, "Load error: %s", dlerror());
        return ERR_UNKNOWN;
    }
    for(int i = 0; i <= F_CONTINUE; i++){
        p->functions[i] = dlsym(p->library, NAMES[i]);
        if(p->functions[i] == NULL && i <= needed){
            line_put(LEVEL_ERROR, "Error: Unable to load auth plugin function %s().", NAMES[i]);
            line_put(LEVEL_ERROR, "Load error: %s", dlerror());
            return ERR_UNKNOWN;
        }
    }
    if(p->version == 4 && p->functions[F_START] != NULL && p->functions[F_CONTINUE] == NULL){
        line_put(LEVEL_ERROR, "Error: Plugin has missing mosquitto_auth_continue() function.");
        return ERR_UNKNOWN;
    }
    return ERR_SUCCESS;
}

/* Calls the initialization. Returns 0, or the exit status of the broker. */
int version_load(Plugin *p)
{
    int result;
    if(p->version == 5){
        result = ((Init5)p->functions[F_INIT])(p, &p->userdata, p->options, p->n_options);
        if(result) line_put(LEVEL_ERROR, "Error: Plugin returned %d when initialising.", result);
        return result;
    }
    result = ((Init)p->functions[F_INIT])(&p->userdata, p->options, p->n_options);
    if(result){
        line_put(LEVEL_ERROR, "Error: Authentication plugin returned %d when initialising.", result);
        return result;
    }
    mosquitto_callback_register(p, EVENT_RELOAD, on_reload, NULL, p);
    if(p->functions[F_BASIC] != NULL) mosquitto_callback_register(p, EVENT_BASIC_AUTH, on_basic_auth, NULL, p);
    if(p->functions[F_ACL] != NULL) mosquitto_callback_register(p, EVENT_ACL_CHECK, on_acl_check, NULL, p);
    if(p->functions[F_PSK] != NULL) mosquitto_callback_register(p, EVENT_PSK_KEY, on_psk_key, NULL, p);
    if(p->version == 4 && p->functions[F_START] != NULL){
        mosquitto_callback_register(p, EVENT_EXT_AUTH_START, on_auth, NULL, p);
        mosquitto_callback_register(p, EVENT_EXT_AUTH_CONTINUE, on_auth, NULL, p);
    }
    result = ((Security)p->functions[F_SECURITY_INIT])(p->userdata, p->options, p->n_options, false);
    if(result) line_put(LEVEL_ERROR, "Error: Authentication plugin returned %d when initialising its security.", result);
    return result;
}

int version_cleanup(Plugin *p)
{
    ((Security)p->functions[F_SECURITY_CLEANUP])(p->userdata, p->options, p->n_options, false);     /* first: the other frees userdata */
    return ((Cleanup)p->functions[F_CLEANUP])(p->userdata, p->options, p->n_options);
}
