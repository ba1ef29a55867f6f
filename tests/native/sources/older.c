/* A plugin of version 2, 3 or 4 (VERSION). LEAVE_OUT: without this function, as a number. */
#include "plugin.h"

#ifndef LEAVE_OUT
#  define LEAVE_OUT -1
#endif

int mosquitto_auth_plugin_version(void) { return VERSION; }

#if LEAVE_OUT != 0
int mosquitto_auth_plugin_init(void **userdata, struct mosquitto_opt *options, int n)
{
    *userdata = strdup(n == 1 ? options[0].value : "none");
    return 0;
}
#endif
#if LEAVE_OUT != 1
int mosquitto_auth_plugin_cleanup(void *userdata, struct mosquitto_opt *options, int n)
{
    (void)options;
    (void)n;
    mosquitto_log_printf(LEVEL_INFO, "%s is cleaned up", (char *)userdata);
    free(userdata);
    return 0;
}
#endif
#if LEAVE_OUT != 2
int mosquitto_auth_security_init(void *userdata, struct mosquitto_opt *options, int n, bool reload)
{
    (void)options;
    mosquitto_log_printf(LEVEL_INFO, "security of %s begins, %d options, reload %d", (char *)userdata, n, reload);
    return 0;
}
#endif
#if LEAVE_OUT != 3
int mosquitto_auth_security_cleanup(void *userdata, struct mosquitto_opt *options, int n, bool reload)
{
    (void)options;
    (void)n;
    mosquitto_log_printf(LEVEL_INFO, "security of %s ends, reload %d", (char *)userdata, reload);
    return 0;
}
#endif

static int acl(const char *user, const char *topic, int access)
{
    if(user != NULL && !strcmp(user, "abstain")) return ERR_PLUGIN_DEFER;
    return (!strcmp(topic, "open") || (access == ACCESS_READ && !strcmp(topic, "readable")) || (access == ACCESS_SUBSCRIBE && strcmp(topic, "closed"))) ? 0 : ERR_ACL_DENIED;
}

static int login(const char *user, const char *password)
{
    if(user != NULL && !strcmp(user, "defer")) return ERR_PLUGIN_DEFER;
    return user != NULL && password != NULL && !strcmp(password, "secret") ? 0 : ERR_AUTH;
}

#if VERSION == 2
#  if LEAVE_OUT != 4
int mosquitto_auth_acl_check(void *userdata, const char *id, const char *user, const char *topic, int access)
{
    (void)userdata;
    (void)id;
    if(access != ACCESS_READ && access != ACCESS_WRITE) abort();
    return acl(user, topic, access);
}
#  endif
#  if LEAVE_OUT != 5
int mosquitto_auth_unpwd_check(void *userdata, const char *user, const char *password) { (void)userdata; return login(user, password); }
#  endif
#  if LEAVE_OUT != 6
int mosquitto_auth_psk_key_get(void *userdata, const char *hint, const char *identity, char *key, int n) { (void)userdata; (void)hint; (void)identity; (void)key; (void)n; return ERR_AUTH; }
#  endif
#else
#  if LEAVE_OUT != 4
int mosquitto_auth_acl_check(void *userdata, int access, struct mosquitto *client, const struct mosquitto_acl_msg *message)
{
    (void)userdata;
    if(access == ACCESS_UNSUBSCRIBE) abort();
    return acl(mosquitto_client_username(client), message->topic, access);
}
#  endif
#  if LEAVE_OUT != 5
int mosquitto_auth_unpwd_check(void *userdata, struct mosquitto *client, const char *user, const char *password) { (void)userdata; (void)client; return login(user, password); }
#  endif
#  if LEAVE_OUT != 6
int mosquitto_auth_psk_key_get(void *userdata, struct mosquitto *client, const char *hint, const char *identity, char *key, int n) { (void)userdata; (void)client; (void)hint; (void)identity; (void)key; (void)n; return ERR_AUTH; }
#  endif
#endif
#if VERSION == 4
int mosquitto_auth_start(void *userdata, struct mosquitto *client, const char *method, bool again, const void *in, uint16_t n, void **out, uint16_t *out_n)
{
    (void)userdata; (void)client; (void)again; (void)in; (void)n; (void)out; (void)out_n;
    return strcmp(method, "simple") ? ERR_NOT_SUPPORTED : 0;
}
#  if LEAVE_OUT != 8
int mosquitto_auth_continue(void *userdata, struct mosquitto *client, const char *method, const void *in, uint16_t n, void **out, uint16_t *out_n)
{
    (void)userdata; (void)client; (void)method; (void)in; (void)n; (void)out; (void)out_n;
    return ERR_AUTH;
}
#  endif
#endif
