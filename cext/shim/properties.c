/* Lists of MQTT 5 properties [v5 2.2.2]: the functions of Mosquitto's interface, and their form in a packet. */
#define _GNU_SOURCE
#include "shim.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TYPE_BYTE = 1, TYPE_INT16, TYPE_INT32, TYPE_VARINT, TYPE_BINARY, TYPE_STRING, TYPE_PAIR };
enum { VARINT_MAX = 268435455, IN_WILL = 0x100 };

struct mqtt5__property {
    struct mqtt5__property *next;
    uint32_t number;
    uint16_t n, name_n;
    uint8_t id, type;
    char *value, *name;         /* with a zero behind */
};

/* packets: bits 1 << (first byte >> 4); bit 0 = a will */
#define PACKET(type) (1u << ((type) >> 4))
#define CONNECT PACKET(0x10)
#define CONNACK PACKET(0x20)
#define PUBLISH PACKET(0x30)
#define SUBSCRIBE PACKET(0x80)
#define DISCONNECT PACKET(0xE0)
#define AUTH PACKET(0xF0)
#define ACKS (PACKET(0x40) | PACKET(0x50) | PACKET(0x60) | PACKET(0x70) | PACKET(0x90) | PACKET(0xB0))
#define WILL 1u
#define ALL (CONNECT | CONNACK | PUBLISH | SUBSCRIBE | PACKET(0xA0) | ACKS | DISCONNECT | AUTH | WILL)

static const struct { uint8_t id, type; uint32_t packets; const char *name; } KINDS[] = {
    {1, TYPE_BYTE, PUBLISH | WILL, "payload-format-indicator"}, {2, TYPE_INT32, PUBLISH | WILL, "message-expiry-interval"},
    {3, TYPE_STRING, PUBLISH | WILL, "content-type"}, {8, TYPE_STRING, PUBLISH | WILL, "response-topic"},
    {9, TYPE_BINARY, PUBLISH | WILL, "correlation-data"}, {11, TYPE_VARINT, PUBLISH | SUBSCRIBE, "subscription-identifier"},
    {17, TYPE_INT32, CONNECT | CONNACK | DISCONNECT, "session-expiry-interval"}, {18, TYPE_STRING, CONNACK, "assigned-client-identifier"},
    {19, TYPE_INT16, CONNACK, "server-keep-alive"}, {21, TYPE_STRING, CONNECT | CONNACK | AUTH, "authentication-method"},
    {22, TYPE_BINARY, CONNECT | CONNACK | AUTH, "authentication-data"}, {23, TYPE_BYTE, CONNECT, "request-problem-information"},
    {24, TYPE_INT32, WILL, "will-delay-interval"}, {25, TYPE_BYTE, CONNECT, "request-response-information"},
    {26, TYPE_STRING, CONNACK, "response-information"}, {28, TYPE_STRING, CONNACK | DISCONNECT, "server-reference"},
    {31, TYPE_STRING, CONNACK | ACKS | DISCONNECT | AUTH, "reason-string"}, {33, TYPE_INT16, CONNECT | CONNACK, "receive-maximum"},
    {34, TYPE_INT16, CONNECT | CONNACK, "topic-alias-maximum"}, {35, TYPE_INT16, PUBLISH, "topic-alias"},
    {36, TYPE_BYTE, CONNACK, "maximum-qos"}, {37, TYPE_BYTE, CONNACK, "retain-available"}, {38, TYPE_PAIR, ALL, "user-property"},
    {39, TYPE_INT32, CONNECT | CONNACK, "maximum-packet-size"}, {40, TYPE_BYTE, CONNACK, "wildcard-subscription-available"},
    {41, TYPE_BYTE, CONNACK, "subscription-identifier-available"}, {42, TYPE_BYTE, CONNACK, "shared-subscription-available"},
};

static int kind_of(int id)
{
    for(int i = 0; i < (int)(sizeof(KINDS) / sizeof(KINDS[0])); i++){
        if(KINDS[i].id == id) return i;
    }
    return -1;
}

/* ---------------------------------------------------------------- making */

static char *copied(const void *bytes, size_t n)
{
    char *copy = malloc(n + 1);
    if(copy != NULL){
        if(n) memcpy(copy, bytes, n);
        copy[n] = 0;
    }
    return copy;
}

static void release(mosquitto_property *one)
{
    free(one->value);
    free(one->name);
    free(one);
}

/* Appends a property. `value` NULL: it is a number. */
static int append(mosquitto_property **first, int id, uint8_t type, uint32_t number, const void *value, size_t n, const char *name, size_t name_n)
{
    int kind = kind_of(id);
    mosquitto_property *made;
    if(first == NULL || kind < 0 || KINDS[kind].type != type || n > 65535 || name_n > 65535) return ERR_INVAL;
    made = calloc(1, sizeof(*made));
    if(made == NULL) return ERR_NOMEM;
    made->id = (uint8_t)id;
    made->type = type;
    made->number = number;
    made->n = (uint16_t)n;
    made->name_n = (uint16_t)name_n;
    if(type >= TYPE_BINARY) made->value = copied(value, n);
    if(type == TYPE_PAIR) made->name = copied(name, name_n);
    if((type >= TYPE_BINARY && made->value == NULL) || (type == TYPE_PAIR && made->name == NULL)){
        release(made);
        return ERR_NOMEM;
    }
    while(*first != NULL) first = &(*first)->next;
    *first = made;
    return ERR_SUCCESS;
}

EXPORT int mosquitto_property_add_byte(mosquitto_property **list, int id, uint8_t value) { return append(list, id, TYPE_BYTE, value, NULL, 0, NULL, 0); }
EXPORT int mosquitto_property_add_int16(mosquitto_property **list, int id, uint16_t value) { return append(list, id, TYPE_INT16, value, NULL, 0, NULL, 0); }
EXPORT int mosquitto_property_add_int32(mosquitto_property **list, int id, uint32_t value) { return append(list, id, TYPE_INT32, value, NULL, 0, NULL, 0); }

EXPORT int mosquitto_property_add_varint(mosquitto_property **list, int id, uint32_t value)
{
    return value > VARINT_MAX ? ERR_INVAL : append(list, id, TYPE_VARINT, value, NULL, 0, NULL, 0);
}

EXPORT int mosquitto_property_add_binary(mosquitto_property **list, int id, const void *value, uint16_t n)
{
    return value == NULL && n ? ERR_INVAL : append(list, id, TYPE_BINARY, 0, value, n, NULL, 0);
}

static int text_check(const char *text, size_t n)
{
    return n > 65535 ? ERR_INVAL : n ? mosquitto_validate_utf8(text, (int)n) : ERR_SUCCESS;
}

EXPORT int mosquitto_property_add_string(mosquitto_property **list, int id, const char *value)
{
    size_t n = value == NULL ? 0 : strlen(value);
    int result = text_check(value, n);
    return result ? result : append(list, id, TYPE_STRING, 0, value, n, NULL, 0);
}

EXPORT int mosquitto_property_add_string_pair(mosquitto_property **list, int id, const char *name, const char *value)
{
    size_t n, name_n;
    int result;
    name = name == NULL ? "" : name;            /* as in Mosquitto: a plugin may pass the name of a client that has none */
    value = value == NULL ? "" : value;
    name_n = strlen(name);
    n = strlen(value);
    result = text_check(name, name_n);
    result = result ? result : text_check(value, n);
    return result ? result : append(list, id, TYPE_PAIR, 0, value, n, name, name_n);
}

static __thread mosquitto_property **held;

mosquitto_property **properties_hold(mosquitto_property **list)
{
    mosquitto_property **before = held;
    held = list;
    return before;
}

/* `one` leaves the list whose first property it may be. */
static void let_go(const mosquitto_property *one, mosquitto_property *rest)
{
    if(held != NULL && *held == one) *held = rest;
}

EXPORT void mosquitto_property_free(mosquitto_property **one)
{
    if(one != NULL && *one != NULL){
        release(*one);
        *one = NULL;
    }
}

EXPORT void mosquitto_property_free_all(mosquitto_property **first)
{
    mosquitto_property *one;
    if(first == NULL) return;
    if(held != NULL && first != held) let_go(*first, NULL);
    while((one = *first) != NULL){
        *first = one->next;
        release(one);
    }
}

EXPORT int mosquitto_property_copy_all(mosquitto_property **copy, const mosquitto_property *first)
{
    int result;
    if(copy == NULL) return ERR_INVAL;
    *copy = NULL;
    for(; first != NULL; first = first->next){
        result = append(copy, first->id, first->type, first->number, first->value, first->n, first->name, first->name_n);
        if(result){
            mosquitto_property_free_all(copy);
            return result;
        }
    }
    return ERR_SUCCESS;
}

EXPORT int mosquitto_property_remove(mosquitto_property **list, const mosquitto_property *one)
{
    if(list == NULL || one == NULL) return ERR_INVAL;
    for(; *list != NULL; list = &(*list)->next){
        if(*list == one){
            let_go(one, one->next);
            *list = one->next;
            ((mosquitto_property *)one)->next = NULL;
            return ERR_SUCCESS;
        }
    }
    return ERR_NOT_FOUND;
}

/* ---------------------------------------------------------------- reading */

static const mosquitto_property *find(const mosquitto_property *one, int id, bool skip_first)
{
    if(one != NULL && skip_first) one = one->next;
    while(one != NULL && one->id != id) one = one->next;
    return one;
}

#define READ_NUMBER(name, ctype, wanted) \
    EXPORT const mosquitto_property *mosquitto_property_read_##name(const mosquitto_property *list, int id, ctype *value, bool skip_first) \
    { \
        const mosquitto_property *one = find(list, id, skip_first); \
        if(one == NULL || one->type != wanted) return NULL; \
        if(value != NULL) *value = (ctype)one->number; \
        return one; \
    } \
    EXPORT ctype mosquitto_property_##name##_value(const mosquitto_property *one) \
    { \
        return one != NULL && one->type == wanted ? (ctype)one->number : 0; \
    }

READ_NUMBER(byte, uint8_t, TYPE_BYTE)
READ_NUMBER(int16, uint16_t, TYPE_INT16)
READ_NUMBER(int32, uint32_t, TYPE_INT32)
READ_NUMBER(varint, uint32_t, TYPE_VARINT)

EXPORT const mosquitto_property *mosquitto_property_read_binary(const mosquitto_property *list, int id, void **value, uint16_t *n, bool skip_first)
{
    const mosquitto_property *one = find(list, id, skip_first);
    if((value != NULL && n == NULL) || (value == NULL && n != NULL)) return NULL;
    if(value != NULL) *value = NULL;
    if(n != NULL) *n = 0;
    if(one == NULL || one->type != TYPE_BINARY) return NULL;
    if(value != NULL && one->n){
        *value = copied(one->value, one->n);
        if(*value == NULL) return NULL;
        *n = one->n;
    }
    return one;
}

EXPORT const mosquitto_property *mosquitto_property_read_string(const mosquitto_property *list, int id, char **value, bool skip_first)
{
    const mosquitto_property *one = find(list, id, skip_first);
    if(value != NULL) *value = NULL;
    if(one == NULL || one->type != TYPE_STRING) return NULL;
    return value != NULL && (*value = copied(one->value, one->n)) == NULL ? NULL : one;
}

EXPORT const mosquitto_property *mosquitto_property_read_string_pair(const mosquitto_property *list, int id, char **name, char **value, bool skip_first)
{
    const mosquitto_property *one = find(list, id, skip_first);
    if(name != NULL) *name = NULL;
    if(value != NULL) *value = NULL;
    if(one == NULL || one->type != TYPE_PAIR) return NULL;
    if(name != NULL && (*name = copied(one->name, one->name_n)) == NULL) return NULL;
    if(value != NULL && (*value = copied(one->value, one->n)) == NULL){
        if(name != NULL){
            free(*name);
            *name = NULL;
        }
        return NULL;
    }
    return one;
}

static bool has_type(const mosquitto_property *one, int type) { return one != NULL && one->type == type; }

EXPORT int mosquitto_property_identifier(const mosquitto_property *one) { return one == NULL ? 0 : one->id; }
EXPORT int mosquitto_property_type(const mosquitto_property *one) { return one == NULL ? 0 : one->type; }
EXPORT mosquitto_property *mosquitto_property_next(const mosquitto_property *one) { return one == NULL ? NULL : one->next; }
EXPORT const void *mosquitto_property_binary_value(const mosquitto_property *one) { return has_type(one, TYPE_BINARY) ? one->value : NULL; }
EXPORT uint16_t mosquitto_property_binary_value_length(const mosquitto_property *one) { return has_type(one, TYPE_BINARY) ? one->n : 0; }

EXPORT const char *mosquitto_property_string_value(const mosquitto_property *one)
{
    return has_type(one, TYPE_STRING) || has_type(one, TYPE_PAIR) ? one->value : NULL;
}

EXPORT uint16_t mosquitto_property_string_value_length(const mosquitto_property *one)
{
    return has_type(one, TYPE_STRING) || has_type(one, TYPE_PAIR) ? one->n : 0;
}

EXPORT const char *mosquitto_property_string_name(const mosquitto_property *one) { return has_type(one, TYPE_PAIR) ? one->name : NULL; }
EXPORT uint16_t mosquitto_property_string_name_length(const mosquitto_property *one) { return has_type(one, TYPE_PAIR) ? one->name_n : 0; }

/* ---------------------------------------------------------------- checks and names */

EXPORT int mosquitto_property_check_command(int command, int id)
{
    int kind = kind_of(id);
    uint32_t bit = command == IN_WILL ? WILL : command > 0 && command < IN_WILL ? 1u << (command >> 4) : 0;
    return kind < 0 || !(KINDS[kind].packets & bit) ? ERR_PROTOCOL : ERR_SUCCESS;
}

static int value_check(const mosquitto_property *one)
{
    static const uint8_t FLAGS[] = {1, 23, 25, 36, 37, 40, 41, 42};
    if(memchr(FLAGS, one->id, sizeof(FLAGS)) != NULL && one->number > 1) return ERR_PROTOCOL;
    if((one->id == 33 || one->id == 35 || one->id == 39 || one->id == 11) && one->number == 0) return ERR_PROTOCOL;
    if(one->id == 8 && (memchr(one->value, '+', one->n) != NULL || memchr(one->value, '#', one->n) != NULL)) return ERR_PROTOCOL;
    return ERR_SUCCESS;
}

EXPORT int mosquitto_property_check_all(int command, const mosquitto_property *first)
{
    int result;
    for(const mosquitto_property *one = first; one != NULL; one = one->next){
        result = value_check(one);
        result = result ? result : mosquitto_property_check_command(command, one->id);
        if(result) return result;
        if(one->id != 38 && !(one->id == 11 && command == 0x30) && find(one, one->id, true) != NULL) return ERR_DUPLICATE_PROPERTY;
    }
    return ERR_SUCCESS;
}

EXPORT const char *mosquitto_property_identifier_to_string(int id)
{
    int kind = kind_of(id);
    return kind < 0 ? NULL : KINDS[kind].name;
}

EXPORT int mosquitto_string_to_property_info(const char *name, int *id, int *type)
{
    if(name == NULL || id == NULL || type == NULL) return ERR_INVAL;
    for(size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++){
        if(strcasecmp(name, KINDS[i].name) == 0){
            *id = KINDS[i].id;
            *type = KINDS[i].type;
            return ERR_SUCCESS;
        }
    }
    return ERR_INVAL;
}

/* ---------------------------------------------------------------- their form in a packet */

EXPORT unsigned int mosquitto_varint_bytes(uint32_t value)
{
    return value < 128 ? 1 : value < 16384 ? 2 : value < 2097152 ? 3 : value < 268435456 ? 4 : 5;
}

EXPORT unsigned int mosquitto_property_get_length(const mosquitto_property *one)
{
    if(one == NULL) return 0;
    switch(one->type){
        case TYPE_BYTE: return 2;
        case TYPE_INT16: return 3;
        case TYPE_INT32: return 5;
        case TYPE_VARINT: return 1 + mosquitto_varint_bytes(one->number);
        case TYPE_PAIR: return 5u + one->name_n + one->n;
        default: return 3u + one->n;
    }
}

EXPORT unsigned int mosquitto_property_get_length_all(const mosquitto_property *one)
{
    unsigned int n = 0;
    for(; one != NULL; one = one->next) n += mosquitto_property_get_length(one);
    return n;
}

EXPORT unsigned int mosquitto_property_get_remaining_length(const mosquitto_property *first)
{
    unsigned int n = mosquitto_property_get_length_all(first);
    return n + mosquitto_varint_bytes(n);
}

static uint8_t *put_number(uint8_t *p, uint32_t value, int n)
{
    while(n--) *p++ = (uint8_t)(value >> (8 * n));
    return p;
}

static uint8_t *put_bytes(uint8_t *p, const char *bytes, uint16_t n)
{
    p = put_number(p, n, 2);
    if(n) memcpy(p, bytes, n);
    return p + n;
}

static uint8_t *put_one(uint8_t *p, const mosquitto_property *one)
{
    uint32_t left = one->number;
    *p++ = one->id;
    switch(one->type){
        case TYPE_BYTE: return put_number(p, one->number, 1);
        case TYPE_INT16: return put_number(p, one->number, 2);
        case TYPE_INT32: return put_number(p, one->number, 4);
        case TYPE_VARINT:
            do{
                *p++ = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
                left >>= 7;
            }while(left);
            return p;
        case TYPE_PAIR: return put_bytes(put_bytes(p, one->name, one->name_n), one->value, one->n);
        default: return put_bytes(p, one->value, one->n);
    }
}

/* A message's expiry, its alias and identifiers of subscriptions are the broker's own. */
static bool is_passed_on(const mosquitto_property *one)
{
    return one->id == 1 || one->id == 3 || one->id == 8 || one->id == 9 || one->id == 38;
}

/* Returns whether a receiver accepts it beside those before it, whose kinds are bits of `before` [v5 3.3.2.3]. */
static bool is_accepted(const mosquitto_property *one, uint32_t *before)
{
    if(value_check(one) != 0) return false;
    if(one->id == 38) return true;      /* the only one that a PUBLISH may have several times */
    if(*before >> one->id & 1) return false;
    *before |= 1u << one->id;
    return true;
}

int properties_write(const mosquitto_property *first, uint8_t **bytes, uint32_t *n, int *left_out)
{
    size_t length = 0;
    uint32_t before = 0;
    int refused = 0;
    uint8_t *p;
    *bytes = NULL;
    *n = 0;
    for(const mosquitto_property *one = first; one != NULL; one = one->next){
        if(!is_passed_on(one)) continue;
        if(is_accepted(one, &before)) length += mosquitto_property_get_length(one);
        else refused++;
    }
    if(left_out != NULL) *left_out = refused;
    if(length == 0) return 0;
    if(length > VARINT_MAX || (p = *bytes = malloc(length)) == NULL) return -1;
    before = 0;
    for(const mosquitto_property *one = first; one != NULL; one = one->next){
        if(is_passed_on(one) && is_accepted(one, &before)) p = put_one(p, one);
    }
    *n = (uint32_t)length;
    return 0;
}

static bool take_number(const uint8_t **p, const uint8_t *end, int n, uint32_t *value)
{
    if(end - *p < n) return false;
    *value = 0;
    while(n--) *value = *value << 8 | *(*p)++;
    return true;
}

static bool take_varint(const uint8_t **p, const uint8_t *end, uint32_t *value)
{
    int shift = 0;
    *value = 0;
    while(*p < end && shift < 28){
        *value |= (uint32_t)(**p & 127) << shift;
        shift += 7;
        if(!(*(*p)++ & 128)) return true;
    }
    return false;
}

static bool take_bytes(const uint8_t **p, const uint8_t *end, const uint8_t **bytes, uint32_t *n)
{
    if(!take_number(p, end, 2, n) || end - *p < (ptrdiff_t)*n) return false;
    *bytes = *p;
    *p += *n;
    return true;
}

mosquitto_property *properties_read(const uint8_t *p, uint32_t length)
{
    const uint8_t *end = p + length;
    const uint8_t *value, *name;
    mosquitto_property *first = NULL;
    mosquitto_property **last = &first;         /* a packet may have thousands of them */
    uint32_t number, n, name_n;
    int kind, type;
    bool good = p != NULL;
    while(good && p < end){
        kind = kind_of(*p++);
        if(kind < 0) break;
        type = KINDS[kind].type;
        number = n = name_n = 0;
        value = name = NULL;
        if(type <= TYPE_INT32) good = take_number(&p, end, type == TYPE_BYTE ? 1 : type == TYPE_INT16 ? 2 : 4, &number);
        else if(type == TYPE_VARINT) good = take_varint(&p, end, &number);
        else{
            if(type == TYPE_PAIR) good = take_bytes(&p, end, &name, &name_n);
            good = good && take_bytes(&p, end, &value, &n);
        }
        good = good && append(last, KINDS[kind].id, (uint8_t)type, number, value, n, (const char *)name, name_n) == ERR_SUCCESS;
        if(good) last = &(*last)->next;
    }
    if(!good) mosquitto_property_free_all(&first);      /* a callback must not decide without some of them */
    return first;
}
