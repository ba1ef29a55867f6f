/* What the plugins of the tests call. The layouts are those that the shim is compiled with. */
#include "../../../cext/shim/interface.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int mosquitto_callback_register(Plugin *, int, Callback, const void *, void *);
int mosquitto_callback_unregister(Plugin *, int, Callback, const void *);
int mosquitto_plugin_set_info(Plugin *, const char *, const char *);
void mosquitto_log_printf(int, const char *, ...);
const char *mosquitto_client_id(const struct mosquitto *);
const char *mosquitto_client_username(const struct mosquitto *);
const char *mosquitto_client_address(const struct mosquitto *);
int mosquitto_client_keepalive(const struct mosquitto *);
int mosquitto_client_protocol(const struct mosquitto *);
int mosquitto_client_protocol_version(const struct mosquitto *);
int mosquitto_client_port(const struct mosquitto *);
int mosquitto_client_sub_count(const struct mosquitto *);
bool mosquitto_client_clean_session(const struct mosquitto *);
struct mosquitto *mosquitto_client(const char *);
int mosquitto_set_username(struct mosquitto *, const char *);
int mosquitto_set_clientid(struct mosquitto *, const char *);
void mosquitto_complete_basic_auth(const char *, int);
int mosquitto_kick_client_by_clientid(const char *, bool);
int mosquitto_kick_client_by_username(const char *, bool);
int mosquitto_apply_on_all_clients(int (*)(const struct mosquitto *, void *), void *);
int mosquitto_broker_publish_copy(const char *, const char *, int, const void *, int, bool, mosquitto_property *);
int mosquitto_broker_publish(const char *, const char *, int, void *, int, bool, mosquitto_property *);
int mosquitto_property_add_byte(mosquitto_property **, int, uint8_t);
int mosquitto_property_add_string(mosquitto_property **, int, const char *);
int mosquitto_property_add_string_pair(mosquitto_property **, int, const char *, const char *);
const mosquitto_property *mosquitto_property_read_string_pair(const mosquitto_property *, int, char **, char **, bool);
int mosquitto_property_remove(mosquitto_property **, const mosquitto_property *);
void mosquitto_property_free(mosquitto_property **);
void mosquitto_property_free_all(mosquitto_property **);
char *mosquitto_strdup(const char *);
void mosquitto_free(void *);

static inline const char *shown(const char *text) { return text == NULL ? "-" : text; }
static inline void say(const char *topic, const char *text) { mosquitto_broker_publish_copy(NULL, topic, (int)strlen(text), text, 0, false, NULL); }
