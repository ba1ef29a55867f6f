/* Hashes of passwords in Mosquitto's text forms: `$6$SALT$HASH` (SHA-512) and `$7$ITERATIONS$SALT$HASH` (PBKDF2-HMAC-SHA-512), with
 * salt and hash in base64, and `$argon2id$...`, the text form of libargon2, which is looked for when a plugin needs it.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_N = 64, SALT_N = 64, KIND_DEFAULT = 0, KIND_SHA512 = 6, KIND_PBKDF2 = 7, KIND_ARGON2ID = 8, ITERATIONS = 1000, ITERATIONS_MAX = 10000000 };
enum { ARGON2_PASSES = 1, ARGON2_KIB = 47104, ARGON2_LANES = 1, ARGON2_TEXT = 512 };        /* Mosquitto's costs */

struct mosquitto_pw {
    char *encoded;
    uint8_t hash[HASH_N];
    uint8_t salt[SALT_N];
    size_t salt_n;
    int kind, iterations;
    bool valid;
};

int mosquitto_base64_encode(const unsigned char *in, size_t n, char **out);
int mosquitto_base64_decode(const char *in, unsigned char **out, unsigned int *n);
int mosquitto_getrandom(void *bytes, int count);

static struct {
    int (*hash)(uint32_t, uint32_t, uint32_t, const void *, size_t, const void *, size_t, size_t, char *, size_t);
    int (*verify)(const char *, const void *, size_t);
} argon2;

static pthread_once_t argon2_once = PTHREAD_ONCE_INIT;

static void argon2_load(void)
{
    void *library = dlopen("libargon2.so.1", RTLD_NOW | RTLD_LOCAL);
    if(library != NULL){
        *(void **)&argon2.hash = dlsym(library, "argon2id_hash_encoded");
        *(void **)&argon2.verify = dlsym(library, "argon2id_verify");
    }
    if(argon2.hash == NULL || argon2.verify == NULL){
        line_put(LEVEL_ERROR, "Error: A plugin needs the library libargon2.so.1 for a password, and it cannot be loaded.");
        argon2.hash = NULL;
    }
}

static bool argon2_there(void)
{
    pthread_once(&argon2_once, argon2_load);
    return argon2.hash != NULL;
}

EXPORT int mosquitto_pw_new(struct mosquitto_pw **made, int kind)
{
    if(made == NULL) return ERR_INVAL;
    *made = NULL;
    if(kind != KIND_DEFAULT && kind != KIND_SHA512 && kind != KIND_PBKDF2 && !(kind == KIND_ARGON2ID && argon2_there())) return ERR_NOT_SUPPORTED;
    *made = calloc(1, sizeof(struct mosquitto_pw));
    if(*made == NULL) return ERR_NOMEM;
    (*made)->kind = kind == KIND_DEFAULT ? KIND_PBKDF2 : kind;
    (*made)->iterations = ITERATIONS;
    return ERR_SUCCESS;
}

EXPORT void mosquitto_pw_cleanup(struct mosquitto_pw *pw)
{
    if(pw == NULL) return;
    free(pw->encoded);
    explicit_bzero(pw, sizeof(*pw));
    free(pw);
}

EXPORT void mosquitto_pw_set_valid(struct mosquitto_pw *pw, bool valid) { if(pw != NULL) pw->valid = valid; }
EXPORT bool mosquitto_pw_is_valid(struct mosquitto_pw *pw) { return pw != NULL && pw->valid; }
EXPORT const char *mosquitto_pw_get_encoded(struct mosquitto_pw *pw) { return pw == NULL ? NULL : pw->encoded; }

EXPORT int mosquitto_pw_set_param(struct mosquitto_pw *pw, int param, int value)
{
    if(pw == NULL || param != 1 || value < 1 || value > ITERATIONS_MAX) return ERR_INVAL;
    pw->iterations = value;
    return ERR_SUCCESS;
}

static int hash_of(const struct mosquitto_pw *pw, const char *password, uint8_t *hash)
{
    EVP_MD_CTX *context;
    unsigned int n = 0;
    int good;
    if(pw->kind == KIND_PBKDF2){
        good = PKCS5_PBKDF2_HMAC(password, (int)strlen(password), pw->salt, (int)pw->salt_n, pw->iterations, EVP_sha512(), HASH_N, hash);
        return good == 1 ? ERR_SUCCESS : ERR_UNKNOWN;
    }
    context = EVP_MD_CTX_new();
    if(context == NULL) return ERR_NOMEM;
    good = EVP_DigestInit_ex(context, EVP_sha512(), NULL) && EVP_DigestUpdate(context, password, strlen(password))
        && EVP_DigestUpdate(context, pw->salt, pw->salt_n) && EVP_DigestFinal_ex(context, hash, &n);
    EVP_MD_CTX_free(context);
    return good && n == HASH_N ? ERR_SUCCESS : ERR_UNKNOWN;
}

static int encode(struct mosquitto_pw *pw)
{
    char *salt = NULL, *hash = NULL;
    int n = -1;
    free(pw->encoded);
    pw->encoded = NULL;
    if(mosquitto_base64_encode(pw->salt, pw->salt_n, &salt) == 0 && mosquitto_base64_encode(pw->hash, HASH_N, &hash) == 0){
        n = pw->kind == KIND_PBKDF2 ? asprintf(&pw->encoded, "$7$%d$%s$%s", pw->iterations, salt, hash) : asprintf(&pw->encoded, "$6$%s$%s", salt, hash);
    }
    free(salt);
    free(hash);
    if(n < 0) pw->encoded = NULL;
    return n < 0 ? ERR_NOMEM : ERR_SUCCESS;
}

static int encode_argon2(struct mosquitto_pw *pw, const char *password)
{
    free(pw->encoded);
    pw->encoded = calloc(1, ARGON2_TEXT);
    if(pw->encoded == NULL) return ERR_NOMEM;
    if(!argon2_there()) return ERR_NOT_SUPPORTED;
    return argon2.hash(ARGON2_PASSES, ARGON2_KIB, ARGON2_LANES, password, strlen(password), pw->salt, SALT_N, HASH_N, pw->encoded, ARGON2_TEXT) == 0
        ? ERR_SUCCESS : ERR_UNKNOWN;
}

EXPORT int mosquitto_pw_hash_encoded(struct mosquitto_pw *pw, const char *password)
{
    int result;
    if(pw == NULL || password == NULL) return ERR_INVAL;
    pw->salt_n = SALT_N;
    result = mosquitto_getrandom(pw->salt, SALT_N);
    if(result == ERR_SUCCESS && pw->kind == KIND_ARGON2ID){
        result = encode_argon2(pw, password);
    }else{
        result = result ? result : hash_of(pw, password, pw->hash);
        result = result ? result : encode(pw);
    }
    pw->valid = result == ERR_SUCCESS;
    return result;
}

EXPORT int mosquitto_pw_verify(struct mosquitto_pw *pw, const char *password)
{
    uint8_t hash[HASH_N];
    int result;
    if(pw == NULL || password == NULL || !pw->valid) return ERR_INVAL;
    if(pw->kind == KIND_ARGON2ID){
        if(!argon2_there()) return ERR_NOT_SUPPORTED;
        return argon2.verify(pw->encoded, password, strlen(password)) == 0 ? ERR_SUCCESS : ERR_AUTH;
    }
    result = hash_of(pw, password, hash);
    if(result == ERR_SUCCESS && CRYPTO_memcmp(hash, pw->hash, HASH_N) != 0) result = ERR_AUTH;
    explicit_bzero(hash, sizeof(hash));
    return result;
}

static int decode_part(const char *text, uint8_t *out, size_t room, size_t *n)
{
    unsigned char *bytes = NULL;
    unsigned int length = 0;
    int result = mosquitto_base64_decode(text, &bytes, &length);
    if(result == ERR_SUCCESS && (length == 0 || length > room)) result = ERR_INVAL;
    if(result == ERR_SUCCESS){
        memcpy(out, bytes, length);
        *n = length;
    }
    free(bytes);
    return result;
}

static int encoded_take(struct mosquitto_pw *pw, const char *encoded)
{
    char *copy = strdup(encoded);
    free(pw->encoded);
    pw->encoded = copy;
    pw->valid = copy != NULL;
    return copy == NULL ? ERR_NOMEM : ERR_SUCCESS;
}

EXPORT int mosquitto_pw_decode(struct mosquitto_pw *pw, const char *encoded)
{
    char *copy, *rest, *kind, *salt, *hash, *iterations = NULL;
    size_t n = 0;
    int result = ERR_INVAL;
    if(pw == NULL || encoded == NULL || encoded[0] != '$') return ERR_INVAL;
    pw->valid = false;
    if(strncmp(encoded, "$argon2id$", 10) == 0){        /* libargon2 reads it when a password is compared */
        pw->kind = KIND_ARGON2ID;
        return encoded_take(pw, encoded);
    }
    if((copy = strdup(encoded)) == NULL) return ERR_NOMEM;
    rest = copy + 1;
    kind = strsep(&rest, "$");
    if(strcmp(kind, "7") == 0) iterations = strsep(&rest, "$");
    salt = strsep(&rest, "$");
    hash = strsep(&rest, "$");
    if((strcmp(kind, "6") == 0 || iterations != NULL) && salt != NULL && hash != NULL && rest == NULL){
        pw->kind = kind[0] - '0';
        pw->iterations = iterations == NULL ? ITERATIONS : atoi(iterations);
        result = pw->iterations < 1 || pw->iterations > ITERATIONS_MAX ? ERR_INVAL : decode_part(salt, pw->salt, SALT_N, &pw->salt_n);
        result = result ? result : decode_part(hash, pw->hash, HASH_N, &n);
        if(result == ERR_SUCCESS && n != HASH_N) result = ERR_INVAL;
    }
    free(copy);
    return result ? result : encoded_take(pw, encoded);
}
