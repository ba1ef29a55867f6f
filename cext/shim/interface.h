/* The binary interface between Mosquitto and its native plugins, versions 2 to 5: the numbers and the layouts that a plugin was
 * compiled with. They are facts of that interface, declared here in our own words. A field of them must not move.
 */
#ifndef MOSQ_SHIM_INTERFACE_H
#define MOSQ_SHIM_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* results of functions and callbacks */
enum {
    ERR_AUTH_DELAYED = -5, ERR_AUTH_CONTINUE = -4, ERR_SUCCESS = 0, ERR_NOMEM = 1, ERR_PROTOCOL = 2, ERR_INVAL = 3, ERR_NOT_FOUND = 6,
    ERR_NOT_SUPPORTED = 10, ERR_AUTH = 11, ERR_ACL_DENIED = 12, ERR_UNKNOWN = 13, ERR_ERRNO = 14, ERR_PLUGIN_DEFER = 17,
    ERR_MALFORMED_UTF8 = 18, ERR_MALFORMED_PACKET = 21, ERR_DUPLICATE_PROPERTY = 22, ERR_ALREADY_EXISTS = 31, ERR_PLUGIN_IGNORE = 32,
};

/* levels of log lines, as bits */
enum { LEVEL_INFO = 1, LEVEL_NOTICE = 2, LEVEL_WARNING = 4, LEVEL_ERROR = 8, LEVEL_DEBUG = 16 };

enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_SUBSCRIBE = 4, ACCESS_UNSUBSCRIBE = 8 };

/* events of interface version 5 */
enum {
    EVENT_RELOAD = 1, EVENT_ACL_CHECK = 2, EVENT_BASIC_AUTH = 3, EVENT_EXT_AUTH_START = 4, EVENT_EXT_AUTH_CONTINUE = 5,
    EVENT_CONTROL = 6, EVENT_MESSAGE_IN = 7, EVENT_PSK_KEY = 8, EVENT_TICK = 9, EVENT_DISCONNECT = 10, EVENT_CONNECT = 11,
    EVENT_SUBSCRIBE = 12, EVENT_UNSUBSCRIBE = 13, EVENT_RESTORE = 14, EVENT_BASE_MSG_ADD = 15, EVENT_BASE_MSG_DELETE = 16,
    EVENT_RETAIN_SET = 17, EVENT_RETAIN_DELETE = 18, EVENT_CLIENT_ADD = 19, EVENT_CLIENT_DELETE = 20, EVENT_CLIENT_UPDATE = 21,
    EVENT_SUBSCRIPTION_ADD = 22, EVENT_SUBSCRIPTION_DELETE = 23, EVENT_CLIENT_MSG_ADD = 24, EVENT_CLIENT_MSG_DELETE = 25,
    EVENT_CLIENT_MSG_UPDATE = 26, EVENT_MESSAGE_OUT = 27, EVENT_CLIENT_OFFLINE = 28, EVENT_WILL_ADD = 29, EVENT_WILL_DELETE = 30,
    EVENTS = 31,
};

enum { PROTOCOL_MQTT = 0, PROTOCOL_WEBSOCKETS = 2 };

typedef struct mqtt5__property mosquitto_property;
typedef struct mosquitto_plugin_id_t Plugin;
struct mosquitto;

typedef int (*Callback)(int event, void *data, void *userdata);

struct mosquitto_opt { char *key; char *value; };

struct mosquitto_acl_msg { const char *topic; const void *payload; long payloadlen; int qos; bool retain; };

struct mosquitto_subscription {
    char *clientid;
    char *topic_filter;
    mosquitto_property *properties;
    uint32_t identifier;
    uint8_t options;
    uint8_t padding[3];
    void *future2[8];
};

/* the data of each event */
struct mosquitto_evt_reload { void *future; struct mosquitto_opt *options; int option_count; void *future2[4]; };

struct mosquitto_evt_acl_check {
    void *future;
    struct mosquitto *client;
    const char *topic;
    const void *payload;
    mosquitto_property *properties;
    int access;
    uint32_t payloadlen;
    uint8_t qos;
    bool retain;
    void *future2[4];
};

struct mosquitto_evt_basic_auth {
    void *future;
    struct mosquitto *client;
    char *username;
    char *password;
    union { void *future2[4]; struct { uint16_t password_len; }; };
};

struct mosquitto_evt_psk_key {
    void *future;
    struct mosquitto *client;
    const char *hint;
    const char *identity;
    char *key;
    int max_key_len;
    void *future2[4];
};

struct mosquitto_evt_extended_auth {
    void *future;
    struct mosquitto *client;
    const void *data_in;
    void *data_out;
    uint16_t data_in_len;
    uint16_t data_out_len;
    const char *auth_method;
    void *future2[3];
};

struct mosquitto_evt_control {
    void *future;
    struct mosquitto *client;
    const char *topic;
    const void *payload;
    const mosquitto_property *properties;
    char *reason_string;
    uint32_t payloadlen;
    uint8_t qos;
    uint8_t reason_code;
    bool retain;
    uint8_t padding;
    void *future2[4];
};

struct mosquitto_evt_message {
    void *future;
    struct mosquitto *client;
    char *topic;
    void *payload;
    mosquitto_property *properties;
    char *reason_string;
    uint32_t payloadlen;
    uint8_t qos;
    uint8_t reason_code;
    bool retain;
    uint8_t padding;
    void *future2[4];
};

struct mosquitto_evt_tick { void *future; long now_ns; long next_ms; time_t now_s; time_t next_s; void *future2[4]; };

struct mosquitto_evt_connect { void *future; struct mosquitto *client; void *future2[4]; };

/* of DISCONNECT and of CLIENT_OFFLINE */
struct mosquitto_evt_disconnect { void *future; struct mosquitto *client; int reason; void *future2[4]; };

/* of SUBSCRIBE and of UNSUBSCRIBE */
struct mosquitto_evt_subscribe { void *future; struct mosquitto *client; struct mosquitto_subscription data; void *future2[8]; };

/* ---- what persistence plugins keep */

enum { DIRECTION_IN = 0, DIRECTION_OUT = 1, DIRECTION_ALL = 2 };

struct mosquitto_client {
    char *clientid;
    char *username;
    char *auth_method;
    time_t will_delay_time;
    time_t session_expiry_time;
    uint32_t will_delay_interval;
    uint32_t session_expiry_interval;
    uint32_t max_packet_size;
    uint16_t listener_port;
    uint8_t max_qos;
    bool retain_available;
    void *future2[8];
};

struct mosquitto_base_msg {
    uint64_t store_id;
    int64_t expiry_time;
    char *topic;
    void *payload;
    char *source_id;
    char *source_username;
    mosquitto_property *properties;
    uint32_t payloadlen;
    uint16_t source_mid;
    uint16_t source_port;
    uint8_t qos;
    bool retain;
    uint8_t padding[6];
    void *future2[8];
};

struct mosquitto_client_msg {
    const char *clientid;
    uint64_t cmsg_id;
    uint64_t store_id;
    uint32_t subscription_identifier;
    uint16_t mid;
    uint8_t qos;
    bool retain;
    uint8_t dup;
    uint8_t direction;
    uint8_t state;
    uint8_t padding[5];
    void *future2[8];
};

struct mosquitto_will_msg {
    const char *clientid;
    void *payload;
    char *topic;
    mosquitto_property *properties;
    uint32_t payloadlen;
    uint8_t qos;
    bool retain;
};

struct mosquitto_evt_persist_restore { void *future[8]; };
struct mosquitto_evt_persist_client { void *future; struct mosquitto_client data; void *future2[8]; };
struct mosquitto_evt_persist_subscription { void *future; struct mosquitto_subscription data; void *future2[8]; };
struct mosquitto_evt_persist_client_msg { void *future; struct mosquitto_client_msg data; void *future2[8]; };
struct mosquitto_evt_persist_base_msg { void *future; struct mosquitto_base_msg data; void *future2[8]; };
struct mosquitto_evt_persist_retain_msg { void *future; const char *topic; uint64_t store_id; void *future2[8]; };
struct mosquitto_evt_persist_will_msg { void *future; struct mosquitto_will_msg data; void *future2[8]; };

/* The sizes in Mosquitto's headers, on machines with 64 bits. */
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct mosquitto_subscription) == 96 && sizeof(struct mosquitto_acl_msg) == 32, "layout");
_Static_assert(sizeof(struct mosquitto_evt_reload) == 56 && sizeof(struct mosquitto_evt_acl_check) == 88, "layout");
_Static_assert(sizeof(struct mosquitto_evt_basic_auth) == 64 && sizeof(struct mosquitto_evt_psk_key) == 80, "layout");
_Static_assert(sizeof(struct mosquitto_evt_extended_auth) == 72 && sizeof(struct mosquitto_evt_control) == 88, "layout");
_Static_assert(sizeof(struct mosquitto_evt_message) == 88 && sizeof(struct mosquitto_evt_tick) == 72, "layout");
_Static_assert(sizeof(struct mosquitto_evt_connect) == 48 && sizeof(struct mosquitto_evt_disconnect) == 56, "layout");
_Static_assert(sizeof(struct mosquitto_evt_subscribe) == 176, "layout");
_Static_assert(sizeof(struct mosquitto_client) == 120 && sizeof(struct mosquitto_base_msg) == 136, "layout");
_Static_assert(sizeof(struct mosquitto_client_msg) == 104 && sizeof(struct mosquitto_will_msg) == 40, "layout");
_Static_assert(sizeof(struct mosquitto_evt_persist_client) == 192 && sizeof(struct mosquitto_evt_persist_retain_msg) == 88, "layout");
#endif

#endif
