/* Mosquitto's helpers for control topics and for properties as JSON. They pass trees of cJSON, so only plugins that are linked with
 * that library call them; it is looked for when the first one does.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cJSON cJSON;

struct mosquitto_control_cmd {
    struct mosquitto *client;
    cJSON *j_responses;
    cJSON *j_command;
    char *correlation_data;
    const char *command_name;
};

static struct {
    cJSON *(*parse)(const char *, size_t);
    char *(*print)(const cJSON *);
    void (*end)(cJSON *);
    cJSON *(*object)(void);
    cJSON *(*array)(void);
    cJSON *(*text)(const char *);
    cJSON *(*number)(double);
    int (*put)(cJSON *, const char *, cJSON *);
    int (*append)(cJSON *, cJSON *);
    cJSON *(*get)(const cJSON *, const char *);
    int (*count)(const cJSON *);
    cJSON *(*item)(const cJSON *, int);
    char *(*value)(const cJSON *);
} json;

static pthread_once_t json_once = PTHREAD_ONCE_INIT;
static bool json_found;

static void json_load(void)
{
    static const struct { void **place; const char *name; } NAMES[] = {
        {(void **)&json.parse, "cJSON_ParseWithLength"}, {(void **)&json.print, "cJSON_PrintUnformatted"}, {(void **)&json.end, "cJSON_Delete"},
        {(void **)&json.object, "cJSON_CreateObject"}, {(void **)&json.array, "cJSON_CreateArray"}, {(void **)&json.text, "cJSON_CreateString"},
        {(void **)&json.number, "cJSON_CreateNumber"}, {(void **)&json.put, "cJSON_AddItemToObject"}, {(void **)&json.append, "cJSON_AddItemToArray"},
        {(void **)&json.get, "cJSON_GetObjectItem"}, {(void **)&json.count, "cJSON_GetArraySize"}, {(void **)&json.item, "cJSON_GetArrayItem"},
        {(void **)&json.value, "cJSON_GetStringValue"},
    };
    bool there = true;
    void *library = dlopen("libcjson.so.1", RTLD_NOW | RTLD_GLOBAL);
    for(size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++){
        *NAMES[i].place = library == NULL ? NULL : dlsym(library, NAMES[i].name);
        there = there && *NAMES[i].place != NULL;
    }
    if(!there) line_put(LEVEL_ERROR, "Error: A plugin needs the library libcjson.so.1, which cannot be loaded.");
    json_found = there;
}

static bool json_there(void)
{
    pthread_once(&json_once, json_load);
    return json_found;
}

int mosquitto_broker_publish_copy(const char *, const char *, int, const void *, int, bool, mosquitto_property *);

EXPORT void mosquitto_control_command_reply(struct mosquitto_control_cmd *command, const char *error)
{
    cJSON *reply;
    if(command == NULL || !json_there() || (reply = json.object()) == NULL) return;
    json.put(reply, "command", json.text(command->command_name == NULL ? "" : command->command_name));
    if(error != NULL) json.put(reply, "error", json.text(error));
    if(command->correlation_data != NULL) json.put(reply, "correlationData", json.text(command->correlation_data));
    json.append(command->j_responses, reply);
}

EXPORT void mosquitto_control_send_response(cJSON *tree, const char *topic)
{
    char *payload;
    if(tree == NULL || !json_there()) return;
    payload = json.print(tree);
    json.end(tree);
    if(payload == NULL) return;
    mosquitto_broker_publish_copy(NULL, topic, (int)strlen(payload), payload, 0, false, NULL);
    free(payload);
}

static void run_command(struct mosquitto_evt_control *event, cJSON *one, cJSON *responses, void *userdata,
                        int (*call)(struct mosquitto_control_cmd *, void *))
{
    struct mosquitto_control_cmd command;
    cJSON *name = json.get(one, "command"), *correlation = json.get(one, "correlationData");
    memset(&command, 0, sizeof(command));
    command.client = event->client;
    command.j_responses = responses;
    command.j_command = one;
    command.command_name = name == NULL ? NULL : json.value(name);
    command.correlation_data = correlation == NULL ? NULL : json.value(correlation);
    if(command.command_name == NULL){
        command.command_name = "Unknown command";
        mosquitto_control_command_reply(&command, "Missing command");
    }else{
        call(&command, userdata);
    }
}

EXPORT int mosquitto_control_generic_callback(struct mosquitto_evt_control *event, const char *response_topic, void *userdata,
                                              int (*call)(struct mosquitto_control_cmd *, void *))
{
    struct mosquitto_control_cmd bad;
    cJSON *tree, *commands = NULL, *answer, *responses;
    if(event == NULL || call == NULL || response_topic == NULL) return ERR_INVAL;
    if(!json_there()) return ERR_NOT_SUPPORTED;
    answer = json.object();
    responses = json.array();
    if(answer == NULL || responses == NULL) return ERR_NOMEM;
    json.put(answer, "responses", responses);
    tree = event->payloadlen ? json.parse(event->payload, event->payloadlen) : NULL;
    if(tree != NULL) commands = json.get(tree, "commands");
    if(commands == NULL){
        memset(&bad, 0, sizeof(bad));
        bad.j_responses = responses;
        bad.command_name = "Unknown command";
        mosquitto_control_command_reply(&bad, tree == NULL ? "Payload not valid JSON" : "Invalid/missing commands");
    }else{
        for(int i = 0; i < json.count(commands); i++) run_command(event, json.item(commands, i), responses, userdata, call);
    }
    if(tree != NULL) json.end(tree);
    mosquitto_control_send_response(answer, response_topic);
    return ERR_SUCCESS;
}

int mosquitto_property_identifier(const mosquitto_property *);
int mosquitto_property_type(const mosquitto_property *);
mosquitto_property *mosquitto_property_next(const mosquitto_property *);
const char *mosquitto_property_identifier_to_string(int);
const char *mosquitto_property_string_value(const mosquitto_property *);
const char *mosquitto_property_string_name(const mosquitto_property *);
uint8_t mosquitto_property_byte_value(const mosquitto_property *);
uint16_t mosquitto_property_int16_value(const mosquitto_property *);
uint32_t mosquitto_property_int32_value(const mosquitto_property *);
uint32_t mosquitto_property_varint_value(const mosquitto_property *);
const void *mosquitto_property_binary_value(const mosquitto_property *);
uint16_t mosquitto_property_binary_value_length(const mosquitto_property *);

/* The value of a binary property as hexadecimal digits, to be freed; NULL for another type, and without memory. */
static char *in_hex(const mosquitto_property *one)
{
    const unsigned char *value = mosquitto_property_binary_value(one);
    size_t i, n = mosquitto_property_binary_value_length(one);
    char *text = value == NULL ? NULL : malloc(2 * n + 1);
    if(text == NULL) return NULL;
    for(i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02X", value[i]);
    text[2 * n] = 0;
    return text;
}

/* Returns a list of {"identifier": NAME, "value": VALUE}, and "name" of a user property. */
EXPORT cJSON *mosquitto_properties_to_json(const mosquitto_property *first)
{
    cJSON *list, *one;
    const char *text;
    char *hex;
    if(first == NULL || !json_there() || (list = json.array()) == NULL) return NULL;
    for(; first != NULL; first = mosquitto_property_next(first)){
        if((one = json.object()) == NULL) break;
        json.append(list, one);
        json.put(one, "identifier", json.text(mosquitto_property_identifier_to_string(mosquitto_property_identifier(first))));
        text = mosquitto_property_string_value(first);
        if(mosquitto_property_string_name(first) != NULL) json.put(one, "name", json.text(mosquitto_property_string_name(first)));
        if(text != NULL) json.put(one, "value", json.text(text));
        else if((hex = in_hex(first)) != NULL){
            json.put(one, "value", json.text(hex));
            free(hex);
        }else if(mosquitto_property_type(first) <= 4){
            json.put(one, "value", json.number((double)mosquitto_property_byte_value(first) + mosquitto_property_int16_value(first)
                                               + mosquitto_property_int32_value(first) + mosquitto_property_varint_value(first)));
        }
    }
    return list;
}
