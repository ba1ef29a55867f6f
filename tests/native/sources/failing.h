/* Included before each source of the shim: its allocations fail when the test wants it. */
#define _GNU_SOURCE      /* as the sources do, and before the first header */
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fails(void);
int failing_vasprintf(char **text, const char *format, va_list arguments);

#define malloc(n) (fails() ? NULL : malloc(n))
#define calloc(n, size) (fails() ? NULL : calloc(n, size))
#define realloc(p, n) (fails() ? NULL : realloc(p, n))
#undef strdup
#define strdup(text) (fails() ? NULL : strdup(text))
#define vasprintf failing_vasprintf
