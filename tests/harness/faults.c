/* Faults of a machine for a broker; LD_PRELOAD puts this library between the broker and the C library. A test turns faults on and
 * off in a shared page (tests/harness/faults.py). They apply at once, so a test does not wait for them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct door {
    uint64_t realloc_from;          /* realloc of this size or more fails, except in the main thread (Python's); 0 = never */
    int64_t wall_ms;                /* offset of the wall clock */
    uint32_t write_errno;           /* errno of pwrite; 0 = success */
    uint32_t sync_errno;            /* errno of fdatasync; 0 = success */
    uint32_t full;                  /* files cannot grow: ENOSPC */
    uint32_t stalled;               /* writes wait until this is 0; 2 = only writes of a batch into a preallocated segment */
    uint32_t waiting;               /* number of waiting writes */
    uint32_t open_errno;            /* errno of opening a store's file for writing; 0 = success */
    uint32_t later_s;               /* offset of the monotonic clocks; it only grows */
    uint32_t sends;                 /* sends to sockets wait until this is 0 */
    uint32_t read_errno;            /* errno of opening a stream's segment for reading; 0 = success */
    uint32_t denied;                /* number of failed reallocs */
    uint32_t threads_refused;       /* no thread can be started: EAGAIN */
};

static volatile struct door* door;

__attribute__((constructor)) static void begin(void)
{
    const char* path = getenv("MOSQ_TEST_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void* p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct door), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        door = p;
    if (fd >= 0)
        close(fd);
}

extern void* __libc_realloc(void* p, size_t n);

void* realloc(void* p, size_t n)
{
    if (door && door->realloc_from && n >= door->realloc_from && gettid() != getpid()) {
        errno = ENOMEM;
        __atomic_add_fetch(&door->denied, 1, __ATOMIC_SEQ_CST);
        return NULL;
    }
    return __libc_realloc(p, n);
}

static int says_something(const unsigned char* p, size_t n)
{
    while (n > 0 && *p == 0)
        p++, n--;
    return n > 0;
}

ssize_t pwrite(int fd, const void* p, size_t n, off_t at)
{
    static ssize_t (*next)(int, const void*, size_t, off_t);
    struct stat now;
    if (!next)
        next = dlsym(RTLD_NEXT, "pwrite");
    if (door && (door->stalled == 1 || (door->stalled == 2 && fstat(fd, &now) == 0 && at + (off_t)n <= now.st_size && says_something(p, n)))) {
        __atomic_add_fetch(&door->waiting, 1, __ATOMIC_SEQ_CST);
        while (door->stalled)
            usleep(200);
        __atomic_sub_fetch(&door->waiting, 1, __ATOMIC_SEQ_CST);
    }
    if (door && door->write_errno) {
        errno = (int)door->write_errno;
        return -1;
    }
    if (door && door->full && fstat(fd, &now) == 0 && at + (off_t)n > now.st_size) {
        if (at >= now.st_size) {
            errno = ENOSPC;
            return -1;
        }
        n = (size_t)(now.st_size - at);
    }
    return next(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void* p, size_t n, off_t at) __attribute__((alias("pwrite")));

int open(const char* path, int flags, ...)
{
    static int (*next)(const char*, int, ...);
    va_list more;
    int mode;
    va_start(more, flags);
    mode = va_arg(more, int);
    va_end(more);
    if (!next)
        next = dlsym(RTLD_NEXT, "open");
    if (door && door->open_errno && (flags & O_ACCMODE) != O_RDONLY && strstr(path, ".store/")) {
        errno = (int)door->open_errno;
        return -1;
    }
    if (door && door->read_errno && (flags & O_ACCMODE) == O_RDONLY && strstr(path, "/streams/") && strstr(path, ".seg")) {
        errno = (int)door->read_errno;
        return -1;
    }
    return next(path, flags, mode);
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));

static void held(void)
{
    if (!door || !door->sends)
        return;
    __atomic_add_fetch(&door->waiting, 1, __ATOMIC_SEQ_CST);
    while (door->sends)
        usleep(200);
    __atomic_sub_fetch(&door->waiting, 1, __ATOMIC_SEQ_CST);
}

ssize_t send(int fd, const void* p, size_t n, int flags)
{
    static ssize_t (*next)(int, const void*, size_t, int);
    if (!next)
        next = dlsym(RTLD_NEXT, "send");
    held();
    return next(fd, p, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr* m, int flags)
{
    static ssize_t (*next)(int, const struct msghdr*, int);
    if (!next)
        next = dlsym(RTLD_NEXT, "sendmsg");
    held();
    return next(fd, m, flags);
}

int fdatasync(int fd)
{
    static int (*next)(int);
    if (!next)
        next = dlsym(RTLD_NEXT, "fdatasync");
    if (door && door->sync_errno) {
        errno = (int)door->sync_errno;
        return -1;
    }
    return next(fd);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main_function)(void*), void* argument)
{
    static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    if (!next)
        next = dlsym(RTLD_NEXT, "pthread_create");
    return door && door->threads_refused ? EAGAIN : next(thread, attributes, main_function, argument);
}

/* Times that a thread waits for are read from the moved clock, but the kernel compares them with its own. */
int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, const struct timespec* until)
{
    static int (*next)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
    struct timespec moved = *until;
    if (!next)
        next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next)                          /* other machines have one version */
        next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    moved.tv_sec -= door ? door->later_s : 0;
    return next(cond, mutex, &moved);
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const struct timespec* until)
{
    static int (*next)(sem_t*, clockid_t, const struct timespec*);
    struct timespec moved = *until;
    if (!next)
        next = dlsym(RTLD_NEXT, "sem_clockwait");
    moved.tv_sec -= door && clock == CLOCK_MONOTONIC ? door->later_s : 0;
    return next(semaphore, clock, &moved);
}

int clock_gettime(clockid_t clock, struct timespec* out)
{
    static int (*next)(clockid_t, struct timespec*);
    int got;
    if (!next)
        next = dlsym(RTLD_NEXT, "clock_gettime");
    got = next(clock, out);
    if (got == 0 && door && clock == CLOCK_MONOTONIC)
        out->tv_sec += door->later_s;
    if (got == 0 && door && clock == CLOCK_REALTIME) {
        out->tv_sec += door->wall_ms / 1000;
        out->tv_nsec += door->wall_ms % 1000 * 1000000;
        if (out->tv_nsec < 0 || out->tv_nsec >= 1000000000) {
            out->tv_sec += out->tv_nsec < 0 ? -1 : 1;
            out->tv_nsec += out->tv_nsec < 0 ? 1000000000 : -1000000000;
        }
    }
    return got;
}
