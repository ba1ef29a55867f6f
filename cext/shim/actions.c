/* What plugins ask of the broker: log lines, messages, ends of connections, answers to delayed logins.
 *
 * Any thread of a plugin may ask at any time. The requests wait in one list. A descriptor becomes readable when the list is no
 * longer empty, and the control plane takes the requests from it (mosq/auth/native/host.py).
 */
#define _GNU_SOURCE
#include "shim.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WAITING_MAX = 100000, BYTES_MAX = 1 << 28, SELDOM_MS = 60000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Action *first, **last = &first;
static int n_waiting, n_lost;
static size_t n_bytes;          /* of the waiting ones */
static int wake_fd = -1;

Action *action_new(int kind)
{
    Action *action = calloc(1, sizeof(Action));
    if(action != NULL) action->kind = kind;
    return action;
}

EXPORT void mosq_shim_action_free(Action *action)
{
    if(action == NULL) return;
    free(action->text);
    free(action->client_id);
    free(action->data);
    free(action->properties);
    free(action);
}

static size_t bytes_of(const Action *action)
{
    return sizeof(*action) + (action->text == NULL ? 0 : strlen(action->text)) + action->data_n + (size_t)action->properties_n;
}

/* Decisions about clients have room of their own: a flood of lines or messages must not let a client stay that a plugin kicks. */
static bool has_room(const Action *action, size_t bytes)
{
    if(action->kind != DO_LOG && action->kind != DO_PUBLISH) return n_waiting < 2 * WAITING_MAX;
    return n_waiting < WAITING_MAX && (n_waiting == 0 || n_bytes + bytes <= BYTES_MAX);
}

void action_put(Action *action)
{
    uint64_t one = 1;
    bool wake = false;
    size_t bytes;
    if(action == NULL) return;
    bytes = bytes_of(action);
    pthread_mutex_lock(&lock);
    if(!has_room(action, bytes)){       /* nobody takes them, or a plugin asks without an end */
        n_lost++;
    }else{
        wake = first == NULL;
        *last = action;
        last = &action->next;
        n_waiting++;
        n_bytes += bytes;
        action = NULL;
    }
    pthread_mutex_unlock(&lock);
    mosq_shim_action_free(action);
    if(wake && wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0) wake = false;
}

int actions_wait(void)
{
    return __atomic_load_n(&n_waiting, __ATOMIC_RELAXED) != 0;
}

EXPORT int mosq_shim_actions_waiting(void) { return __atomic_load_n(&n_waiting, __ATOMIC_RELAXED); }

/* Returns the next request, which the caller frees; NULL: none. */
EXPORT Action *mosq_shim_action_take(void)
{
    Action *action;
    pthread_mutex_lock(&lock);
    action = first;
    if(action != NULL){
        first = action->next;
        if(first == NULL) last = &first;
        n_waiting--;
        n_bytes -= bytes_of(action);
    }
    pthread_mutex_unlock(&lock);
    return action;
}

/* Returns the number of requests that found no room since the last call. */
EXPORT int mosq_shim_actions_lost(void)
{
    int lost;
    pthread_mutex_lock(&lock);
    lost = n_lost;
    n_lost = 0;
    pthread_mutex_unlock(&lock);
    return lost;
}

EXPORT int mosq_shim_wake_fd(void)
{
    if(wake_fd < 0) wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake_fd;
}

/* ---------------------------------------------------------------- log lines */

static void line_given(int level, const char *format, va_list arguments)
{
    Action *action = action_new(DO_LOG);
    if(action == NULL) return;
    action->level = level;
    if(vasprintf(&action->text, format, arguments) < 0) action->text = NULL;
    action_put(action);
}

static void seldom_given(Seldom *seldom, int level, const char *format, va_list arguments)
{
    static pthread_mutex_t seldom_lock = PTHREAD_MUTEX_INITIALIZER;
    int64_t now = now_ms();
    int left_out;
    char *text;
    pthread_mutex_lock(&seldom_lock);
    left_out = seldom->logged_ms && now - seldom->logged_ms < SELDOM_MS ? -1 : seldom->left_out;
    seldom->left_out = left_out < 0 ? seldom->left_out + 1 : 0;
    if(left_out >= 0) seldom->logged_ms = now;
    pthread_mutex_unlock(&seldom_lock);
    if(left_out < 0) return;
    if(vasprintf(&text, format, arguments) < 0){
        seldom->logged_ms = 0;          /* the next one, perhaps */
        return;
    }
    if(left_out) line_put(level, "%s (%d more since the last report).", text, left_out);
    else line_put(level, "%s.", text);
    free(text);
}

void line_seldom(Seldom *seldom, int level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    seldom_given(seldom, level, format, arguments);
    va_end(arguments);
}

void line_put(int level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    line_given(level, format, arguments);
    va_end(arguments);
}

EXPORT void mosquitto_log_vprintf(int level, const char *format, va_list arguments)
{
    if(format != NULL) line_given(level, format, arguments);
}

EXPORT void mosquitto_log_printf(int level, const char *format, ...)
{
    va_list arguments;
    if(format == NULL) return;
    va_start(arguments, format);
    line_given(level, format, arguments);
    va_end(arguments);
}

/* ---------------------------------------------------------------- messages */

static int publish(const char *client_id, const char *topic, int n, const void *payload, int qos, bool retain, mosquitto_property *properties)
{
    static Seldom seldom;
    Action *action;
    int left_out;
    if(topic == NULL || n < 0 || (n > 0 && payload == NULL) || qos < 0 || qos > 2) return ERR_INVAL;
    if(restoring()){                    /* a will, which the broker sends itself */
        mosquitto_property_free_all(&properties);
        return ERR_SUCCESS;
    }
    action = action_new(DO_PUBLISH);
    if(action == NULL) return ERR_NOMEM;
    action->text = strdup(topic);
    action->client_id = client_id == NULL ? NULL : strdup(client_id);
    action->data = malloc((size_t)n + 1);
    action->data_n = (uint32_t)n;
    action->qos = qos;
    action->retain = retain;
    if(action->text == NULL || (client_id != NULL && action->client_id == NULL) || action->data == NULL
            || properties_write(properties, &action->properties, &action->properties_n, &left_out) != 0){
        mosq_shim_action_free(action);
        return ERR_NOMEM;
    }
    if(left_out) line_seldom(&seldom, LEVEL_WARNING, "Warning: A plugin publishes a message on %s with properties that MQTT forbids; they are left out", topic);
    if(n) memcpy(action->data, payload, (size_t)n);
    mosquitto_property_free_all(&properties);
    action_put(action);
    return ERR_SUCCESS;
}

/* The broker owns payload and properties after success. */
EXPORT int mosquitto_broker_publish(const char *client_id, const char *topic, int n, void *payload, int qos, bool retain, mosquitto_property *properties)
{
    int result = publish(client_id, topic, n, payload, qos, retain, properties);
    if(result == ERR_SUCCESS) free(payload);
    return result;
}

/* The broker owns the properties after success. */
EXPORT int mosquitto_broker_publish_copy(const char *client_id, const char *topic, int n, const void *payload, int qos, bool retain, mosquitto_property *properties)
{
    return publish(client_id, topic, n, payload, qos, retain, properties);
}
