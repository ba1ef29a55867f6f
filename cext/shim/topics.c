/* Topic names, topic filters and filters of access rules: whether they are valid, and what they match [v5 4.7].
 *
 * A text is walked level by level. `%c` and `%u` as a whole level of a rule stand for a client id and a user name.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <stdlib.h>
#include <string.h>

enum { LEVELS_MAX = 200, TEXT_MAX = 65535 };

typedef struct { const char *p; size_t n; bool last; } Level;

static Level level_at(const char *text, const char *end)
{
    const char *slash = memchr(text, '/', (size_t)(end - text));
    Level level = {text, (size_t)((slash != NULL ? slash : end) - text), slash == NULL};
    return level;
}

static bool is_text(const Level *level, const char *text)
{
    return level->n == strlen(text) && memcmp(level->p, text, level->n) == 0;
}

static int check(const char *text, size_t n, bool filter)
{
    const char *end;
    Level level;
    size_t i;
    int levels = 0;
    if(text == NULL || n == 0 || n > TEXT_MAX) return ERR_INVAL;
    end = text + n;
    for(;;){
        level = level_at(text, end);
        for(i = 0; i < level.n; i++){
            if(level.p[i] != '+' && level.p[i] != '#') continue;
            if(!filter || level.n != 1 || (level.p[i] == '#' && !level.last)) return ERR_INVAL;
        }
        if(level.last) return ERR_SUCCESS;
        if(++levels > LEVELS_MAX) return ERR_INVAL;
        text = level.p + level.n + 1;
    }
}

EXPORT int mosquitto_pub_topic_check2(const char *topic, size_t n) { return check(topic, n, false); }
EXPORT int mosquitto_sub_topic_check2(const char *filter, size_t n) { return check(filter, n, true); }
EXPORT int mosquitto_pub_topic_check(const char *topic) { return topic == NULL ? ERR_INVAL : check(topic, strlen(topic), false); }
EXPORT int mosquitto_sub_topic_check(const char *filter) { return filter == NULL ? ERR_INVAL : check(filter, strlen(filter), true); }

/* Returns whether a level of a rule equals a level of a topic. `names`: %c and %u stand for these two. */
static bool level_matches(const Level *rule, const Level *level, const char *const *names)
{
    const char *name;
    if(rule->n == 1 && rule->p[0] == '+') return !(level->n == 1 && level->p[0] == '#');
    if(names != NULL && rule->n == 2 && rule->p[0] == '%' && (rule->p[1] == 'c' || rule->p[1] == 'u')){
        name = names[rule->p[1] == 'u'];
        return name != NULL && name[0] && strcmp(name, "+") && strcmp(name, "#") && is_text(level, name);
    }
    return rule->n == level->n && memcmp(rule->p, level->p, rule->n) == 0;
}

static bool matches(const char *rule, const char *rule_end, const char *text, const char *text_end, const char *const *names)
{
    Level a, b;
    if((*rule == '$') != (*text == '$')) return false;
    for(;;){
        a = level_at(rule, rule_end);
        if(a.n == 1 && a.p[0] == '#') return true;
        b = level_at(text, text_end);
        if(!level_matches(&a, &b, names)) return false;
        if(b.last) return a.last || (rule_end - (a.p + a.n) == 2 && a.p[a.n + 1] == '#');      /* a/# matches a [v5 4.7.1.2] */
        if(a.last) return false;
        rule = a.p + a.n + 1;
        text = b.p + b.n + 1;
    }
}

static int match(const char *rule, size_t rule_n, const char *text, size_t text_n, const char *const *names, bool text_is_filter, bool *result)
{
    if(result == NULL) return ERR_INVAL;
    *result = false;
    if(check(rule, rule_n, true) != 0 || check(text, text_n, text_is_filter) != 0) return ERR_INVAL;
    *result = matches(rule, rule + rule_n, text, text + text_n, names);
    return ERR_SUCCESS;
}

static size_t length(const char *text) { return text == NULL ? 0 : strlen(text); }

EXPORT int mosquitto_topic_matches_sub2(const char *filter, size_t filter_n, const char *topic, size_t topic_n, bool *result)
{
    return match(filter, filter_n, topic, topic_n, NULL, false, result);
}

EXPORT int mosquitto_topic_matches_sub(const char *filter, const char *topic, bool *result)
{
    return match(filter, length(filter), topic, length(topic), NULL, false, result);
}

EXPORT int mosquitto_topic_matches_sub_with_pattern(const char *filter, const char *topic, const char *client_id, const char *username, bool *result)
{
    const char *names[2] = {client_id, username};
    return match(filter, length(filter), topic, length(topic), names, false, result);
}

EXPORT int mosquitto_sub_matches_acl(const char *rule, const char *filter, bool *result)
{
    return match(rule, length(rule), filter, length(filter), NULL, true, result);
}

EXPORT int mosquitto_sub_matches_acl_with_pattern(const char *rule, const char *filter, const char *client_id, const char *username, bool *result)
{
    const char *names[2] = {client_id, username};
    return match(rule, length(rule), filter, length(filter), names, true, result);
}

EXPORT int mosquitto_sub_topic_tokenise(const char *filter, char ***levels, int *count)
{
    const char *end;
    Level level;
    int n = 1, i = 0;
    if(filter == NULL || filter[0] == 0 || levels == NULL || count == NULL) return ERR_INVAL;
    end = filter + strlen(filter);
    for(const char *p = filter; p < end; p++) n += *p == '/';
    *levels = calloc((size_t)n, sizeof(char *));
    if(*levels == NULL) return ERR_NOMEM;
    *count = n;
    for(;;){
        level = level_at(filter, end);
        if(level.n && ((*levels)[i] = strndup(level.p, level.n)) == NULL){      /* an empty level is NULL, as in Mosquitto */
            while(i--) free((*levels)[i]);
            free(*levels);
            return ERR_NOMEM;
        }
        i++;
        if(level.last) return ERR_SUCCESS;
        filter = level.p + level.n + 1;
    }
}

EXPORT int mosquitto_sub_topic_tokens_free(char ***levels, int count)
{
    if(levels == NULL || *levels == NULL || count < 1) return ERR_INVAL;
    for(int i = 0; i < count; i++) free((*levels)[i]);
    free(*levels);
    return ERR_SUCCESS;
}
