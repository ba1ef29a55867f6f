/* Functions without state that Mosquitto offers to plugins: memory, text, time, random numbers, files. */
#define _GNU_SOURCE
#include "shim.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- memory: the C library's, so free() and these mix */

EXPORT void *mosquitto_malloc(size_t n) { return malloc(n); }
EXPORT void *mosquitto_calloc(size_t n, size_t size) { return calloc(n, size); }
EXPORT void *mosquitto_realloc(void *p, size_t n) { return realloc(p, n); }
EXPORT void mosquitto_free(void *p) { free(p); }
EXPORT char *mosquitto_strdup(const char *text) { return text == NULL ? NULL : strdup(text); }
EXPORT char *mosquitto_strndup(const char *text, size_t n) { return text == NULL ? NULL : strndup(text, n); }
EXPORT void mosquitto_memory_set_limit(size_t limit) { (void)limit; }

/* The bytes that the process has from malloc. Mosquitto counts its own calls, and the shim is not asked about mosq's. */
EXPORT unsigned long mosquitto_memory_used(void)
{
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* The largest figure that a plugin has seen. */
EXPORT unsigned long mosquitto_max_memory_used(void)
{
    static unsigned long most;
    unsigned long now = mosquitto_memory_used(), seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while(now > seen && !__atomic_compare_exchange_n(&most, &seen, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return now > seen ? now : seen;
}

/* ---------------------------------------------------------------- time and random numbers */

long now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec;
}

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

EXPORT void mosquitto_time_init(void) {}
EXPORT time_t mosquitto_time(void) { return (time_t)now_s(); }

EXPORT void mosquitto_time_ns(time_t *s, long *ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if(s != NULL) *s = t.tv_sec;
    if(ns != NULL) *ns = t.tv_nsec;
}

EXPORT long mosquitto_time_cmp(time_t a_s, long a_ns, time_t b_s, long b_ns)
{
    return a_s == b_s ? a_ns - b_ns : (long)(a_s - b_s);
}

EXPORT int mosquitto_getrandom(void *bytes, int count)
{
    uint8_t *p = bytes;
    ssize_t n;
    if(bytes == NULL || count < 0) return ERR_INVAL;
    while(count > 0){
        n = getrandom(p, (size_t)count, 0);
        if(n < 0 && errno == EINTR) continue;
        if(n <= 0) return ERR_UNKNOWN;
        p += n;
        count -= (int)n;
    }
    return ERR_SUCCESS;
}

/* ---------------------------------------------------------------- UTF-8 [v5 1.5.4] */

EXPORT int mosquitto_validate_utf8(const char *text, int n)
{
    const uint8_t *p = (const uint8_t *)text;
    const uint8_t *end = p + n;
    uint32_t code, least;
    int more;
    if(text == NULL || n < 0 || n > 65535) return ERR_INVAL;
    while(p < end){
        if(*p < 0x80){ code = *p++; more = 0; least = 0; }
        else if((*p & 0xE0) == 0xC0){ code = *p++ & 0x1F; more = 1; least = 0x80; }
        else if((*p & 0xF0) == 0xE0){ code = *p++ & 0x0F; more = 2; least = 0x800; }
        else if((*p & 0xF8) == 0xF0){ code = *p++ & 0x07; more = 3; least = 0x10000; }
        else return ERR_MALFORMED_UTF8;
        while(more--){
            if(p == end || (*p & 0xC0) != 0x80) return ERR_MALFORMED_UTF8;
            code = code << 6 | (*p++ & 0x3F);
        }
        if(code < least || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return ERR_MALFORMED_UTF8;
        if(code < 0x20 || (code >= 0x7F && code <= 0x9F)) return ERR_MALFORMED_UTF8;       /* control characters */
        if((code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE) return ERR_MALFORMED_UTF8;     /* no characters */
    }
    return ERR_SUCCESS;
}

/* ---------------------------------------------------------------- base64 */

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

EXPORT int mosquitto_base64_encode(const unsigned char *in, size_t n, char **out)
{
    size_t i, at = 0;
    uint32_t bits;
    if(out == NULL || (in == NULL && n)) return ERR_INVAL;
    *out = malloc((n + 2) / 3 * 4 + 1);
    if(*out == NULL) return ERR_NOMEM;
    for(i = 0; i < n; i += 3){
        bits = (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0) | (i + 2 < n ? in[i + 2] : 0);
        (*out)[at++] = DIGITS[bits >> 18 & 63];
        (*out)[at++] = DIGITS[bits >> 12 & 63];
        (*out)[at++] = i + 1 < n ? DIGITS[bits >> 6 & 63] : '=';
        (*out)[at++] = i + 2 < n ? DIGITS[bits & 63] : '=';
    }
    (*out)[at] = 0;
    return ERR_SUCCESS;
}

EXPORT int mosquitto_base64_decode(const char *in, unsigned char **out, unsigned int *out_n)
{
    size_t n, i;
    unsigned int at = 0;
    uint32_t bits = 0;
    int held = 0;
    const char *digit;
    if(in == NULL || out == NULL || out_n == NULL) return ERR_INVAL;
    n = strlen(in);
    while(n && (in[n - 1] == '=' || isspace((unsigned char)in[n - 1]))) n--;
    *out = malloc(n / 4 * 3 + 4);
    if(*out == NULL) return ERR_NOMEM;
    for(i = 0; i < n; i++){
        digit = in[i] ? strchr(DIGITS, in[i]) : NULL;
        if(digit == NULL){
            if(isspace((unsigned char)in[i])) continue;
            free(*out);
            *out = NULL;
            *out_n = 0;
            return ERR_INVAL;
        }
        bits = bits << 6 | (uint32_t)(digit - DIGITS);
        held += 6;
        if(held >= 8){
            held -= 8;
            (*out)[at++] = (unsigned char)(bits >> held);
        }
    }
    (*out)[at] = 0;
    *out_n = at;
    return ERR_SUCCESS;
}

/* ---------------------------------------------------------------- texts of numbers */

static const struct { int number; const char *text; } ERRORS[] = {
    {-6, "Quota exceeded"}, {-5, "Authentication delayed"}, {-4, "Continue with authentication"}, {-3, "No subscribers"},
    {-2, "Subscription already exists"}, {-1, "Connection pending"}, {0, "No error"}, {1, "Out of memory"},
    {2, "A network protocol error occurred when communicating with the broker"}, {3, "Invalid arguments provided"},
    {4, "The client is not currently connected"}, {5, "The connection was refused"}, {6, "Message not found (internal error)"},
    {7, "The connection was lost"}, {8, "A TLS error occurred"}, {9, "Payload too large"}, {10, "This feature is not supported"},
    {11, "Authorisation failed"}, {12, "Access denied by ACL"}, {13, "Unknown error"}, {15, "Lookup error"}, {16, "Proxy error"},
    {17, "Plugin deferring result"}, {18, "Malformed UTF-8"}, {19, "Keepalive exceeded"}, {20, "DNS Lookup failed"},
    {21, "Malformed packet"}, {22, "Duplicate property in property list"}, {23, "TLS handshake failed"},
    {24, "Requested QoS not supported on server"}, {25, "Packet larger than supported by the server"}, {26, "OCSP error"},
    {27, "Timeout"}, {31, "Entry already exists"}, {32, "Ignore plugin"},
};

EXPORT const char *mosquitto_strerror(int number)
{
    size_t i;
    if(number == ERR_ERRNO) return strerror(errno);
    for(i = 0; i < sizeof(ERRORS) / sizeof(ERRORS[0]); i++){
        if(ERRORS[i].number == number) return ERRORS[i].text;
    }
    return number >= 128 ? "Protocol error" : "Unknown error";
}

EXPORT const char *mosquitto_connack_string(int code)
{
    static const char *const TEXTS[] = {
        "Connection Accepted", "Connection Refused: unacceptable protocol version", "Connection Refused: identifier rejected",
        "Connection Refused: broker unavailable", "Connection Refused: bad user name or password", "Connection Refused: not authorised",
    };
    return code >= 0 && code < 6 ? TEXTS[code] : "Connection Refused: unknown reason";
}

/* the names of the reason codes are those of the standard [v5 2.4] */
static const struct { int number; const char *text; } REASONS[] = {
    {0, "Success"}, {1, "Granted QoS 1"}, {2, "Granted QoS 2"}, {4, "Disconnect with Will Message"}, {16, "No matching subscribers"},
    {17, "No subscription existed"}, {24, "Continue authentication"}, {25, "Re-authenticate"}, {128, "Unspecified error"},
    {129, "Malformed Packet"}, {130, "Protocol Error"}, {131, "Implementation specific error"}, {132, "Unsupported Protocol Version"},
    {133, "Client Identifier not valid"}, {134, "Bad User Name or Password"}, {135, "Not authorized"}, {136, "Server unavailable"},
    {137, "Server busy"}, {138, "Banned"}, {139, "Server shutting down"}, {140, "Bad authentication method"},
    {141, "Keep Alive timeout"}, {142, "Session taken over"}, {143, "Topic Filter invalid"}, {144, "Topic Name invalid"},
    {145, "Packet Identifier in use"}, {146, "Packet Identifier not found"}, {147, "Receive Maximum exceeded"},
    {148, "Topic Alias invalid"}, {149, "Packet too large"}, {150, "Message rate too high"}, {151, "Quota exceeded"},
    {152, "Administrative action"}, {153, "Payload format invalid"}, {154, "Retain not supported"}, {155, "QoS not supported"},
    {156, "Use another server"}, {157, "Server moved"}, {158, "Shared Subscriptions not supported"}, {159, "Connection rate exceeded"},
    {160, "Maximum connect time"}, {161, "Subscription identifiers not supported"}, {162, "Wildcard Subscriptions not supported"},
};

EXPORT const char *mosquitto_reason_string(int code)
{
    size_t i;
    for(i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++){
        if(REASONS[i].number == code) return REASONS[i].text;
    }
    return "Unknown reason";
}

EXPORT int mosquitto_string_to_command(const char *text, int *command)
{
    static const struct { const char *name; int type; } COMMANDS[] = {
        {"connect", 0x10}, {"connack", 0x20}, {"publish", 0x30}, {"puback", 0x40}, {"pubrec", 0x50}, {"pubrel", 0x60}, {"pubcomp", 0x70},
        {"subscribe", 0x80}, {"suback", 0x90}, {"unsubscribe", 0xA0}, {"unsuback", 0xB0}, {"disconnect", 0xE0}, {"auth", 0xF0},
        {"will", 0x100},
    };
    size_t i;
    if(text == NULL || command == NULL) return ERR_INVAL;
    for(i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++){
        if(strcasecmp(text, COMMANDS[i].name) == 0){
            *command = COMMANDS[i].type;
            return ERR_SUCCESS;
        }
    }
    return ERR_INVAL;
}

/* ---------------------------------------------------------------- files */

/* Opens a file that others must not read, as Mosquitto does: no symbolic link, and a file to be written is a new one. Its mode is given
 * instead of a umask, which belongs to all threads of the process. */
static FILE *open_private(const char *path, const char *mode)
{
    int flags = strchr(mode, '+') != NULL ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY, fd;
    FILE *file;
    if(getenv("MOSQUITTO_UNSAFE_ALLOW_SYMLINKS") == NULL) flags |= O_NOFOLLOW;
    if(mode[0] == 'w') flags |= O_CREAT | O_EXCL;
    if(mode[0] == 'a') flags |= O_CREAT | O_APPEND;
    fd = open(path, flags | O_CLOEXEC, 0600);
    if(fd < 0) return NULL;
    file = fdopen(fd, mode);
    if(file == NULL) close(fd);
    return file;
}

EXPORT FILE *mosquitto_fopen(const char *path, const char *mode, bool restrict_read)
{
    FILE *file;
    struct stat found;
    if(path == NULL || mode == NULL){
        errno = EINVAL;
        return NULL;
    }
    file = restrict_read ? open_private(path, mode) : fopen(path, mode);
    if(file != NULL && restrict_read && fstat(fileno(file), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISFIFO(found.st_mode)){
        fclose(file);
        errno = EINVAL;
        return NULL;
    }
    return file;
}

EXPORT char *mosquitto_fgets(char **buffer, int *size, FILE *stream)
{
    int used = 0;
    char *more;
    if(buffer == NULL || *buffer == NULL || size == NULL || *size < 2 || stream == NULL) return NULL;
    while(fgets(*buffer + used, *size - used, stream) != NULL){
        used += (int)strlen(*buffer + used);
        if(used && (*buffer)[used - 1] == '\n') return *buffer;
        if(used < *size - 1) return *buffer;            /* the last line, without an end */
        if(*size > (1 << 28)) return NULL;
        more = realloc(*buffer, (size_t)*size * 2);
        if(more == NULL) return NULL;
        *buffer = more;
        *size *= 2;
    }
    return used ? *buffer : NULL;
}

EXPORT int mosquitto_read_file(const char *path, bool restrict_read, char **content, size_t *n)
{
    FILE *file;
    long size;
    if(path == NULL || content == NULL) return ERR_INVAL;
    *content = NULL;
    if(n != NULL) *n = 0;
    file = mosquitto_fopen(path, "rb", restrict_read);
    if(file == NULL) return ERR_ERRNO;
    if(fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0){
        fclose(file);
        return ERR_ERRNO;
    }
    *content = calloc(1, (size_t)size + 1);
    if(*content == NULL){
        fclose(file);
        return ERR_NOMEM;
    }
    if(fread(*content, 1, (size_t)size, file) != (size_t)size){
        free(*content);
        *content = NULL;
        fclose(file);
        return ERR_ERRNO;
    }
    fclose(file);
    if(n != NULL) *n = (size_t)size;
    return ERR_SUCCESS;
}

EXPORT int mosquitto_write_file(const char *path, bool restrict_read, int (*write_to)(FILE *, void *), void *context, void (*log_to)(const char *))
{
    char *temporary = NULL;
    FILE *file;
    int result;
    if(path == NULL || write_to == NULL) return ERR_INVAL;
    if(asprintf(&temporary, "%s.new", path) < 0) return ERR_NOMEM;
    unlink(temporary);                  /* of a process that ended in this function */
    file = mosquitto_fopen(temporary, "wb", restrict_read);
    if(file == NULL){
        if(log_to != NULL) log_to("Error: a file cannot be opened for writing.");
        free(temporary);
        return ERR_ERRNO;
    }
    result = write_to(file, context);
    if(fflush(file) != 0 || fsync(fileno(file)) != 0) result = result ? result : ERR_ERRNO;
    if(fclose(file) != 0) result = result ? result : ERR_ERRNO;
    if(result == ERR_SUCCESS && rename(temporary, path) != 0) result = ERR_ERRNO;
    if(result != ERR_SUCCESS){
        if(log_to != NULL) log_to("Error: a file could not be written whole; the old one stays.");
        unlink(temporary);
    }
    free(temporary);
    return result;
}

EXPORT char *mosquitto_trimblanks(char *text)
{
    char *end;
    if(text == NULL) return NULL;
    while(isspace((unsigned char)*text)) text++;
    end = text + strlen(text);
    while(end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

EXPORT void (*libcommon_vprintf)(const char *format, va_list arguments) = NULL;
