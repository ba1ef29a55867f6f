/* Load over TLS for a broker on 127.0.0.1. Prints one line of JSON; CPU is the broker's (all threads, nanoseconds).
 *
 *     tlsload PORT PID pairs PAIRS BURST WINDOW PAYLOAD SECONDS     QoS 0, BURST messages per write, at most WINDOW unanswered writes of a pair
 *     tlsload PORT PID full|resumed COUNT                           connections one after the other: handshake, CONNECT, CONNACK, DISCONNECT
 *     tlsload PORT PID idle COUNT                                   prints a line when COUNT clients are connected, then reads a line
 *
 * One thread, OpenSSL's defaults (TLS 1.3). A wrong byte, or a session that is not resumed, ends the run with status 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    SSL *pub, *sub;
    uint8_t *wire;                  /* one write of the publisher, and the bytes that the subscriber must receive */
    size_t n, at;
    uint64_t done;                  /* bursts delivered */
} Pair;

static SSL_CTX *ctx;
static SSL_SESSION *session;
static int port;

static void die(const char *what) { fprintf(stderr, "tlsload: %s (%s)\n", what, strerror(errno)); exit(1); }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t cpu_ns(int pid)
{
    char path[300];
    uint64_t total = 0, one;
    struct dirent *e;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *d = opendir(path);
    if (!d) die("no such broker");
    while ((e = readdir(d))) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%lu", &one) == 1) total += one;
        fclose(f);
    }
    closedir(d);
    return total;
}

static int on_session(SSL *s, SSL_SESSION *x)
{
    (void)s;
    if (session) SSL_SESSION_free(session);
    session = x;
    return 1;
}

static SSL *secured(SSL_SESSION *resume)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (void *)&a, sizeof a) != 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL *s = SSL_new(ctx);
    if (resume) SSL_set_session(s, resume);
    SSL_set_fd(s, fd);
    if (SSL_connect(s) != 1) die("handshake");
    return s;
}

static void read_exactly(SSL *s, uint8_t *p, int n)
{
    while (n > 0) {
        int got = SSL_read(s, p, n);
        if (got <= 0) die("closed");
        p += got;
        n -= got;
    }
}

static SSL *client(const char *id, SSL_SESSION *resume)
{
    uint8_t p[64] = {0x10, 0, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 0}, ack[4];
    int n = strlen(id);
    p[1] = 12 + n;
    p[13] = n;
    memcpy(p + 14, id, n);
    SSL *s = secured(resume);
    if (SSL_write(s, p, 14 + n) != 14 + n) die("write");
    read_exactly(s, ack, 4);
    if (ack[0] != 0x20 || ack[3] != 0) die("refused");
    return s;
}

static void finish(SSL *s)
{
    int fd = SSL_get_fd(s);
    SSL_set_shutdown(s, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);     /* otherwise OpenSSL would not resume the session */
    SSL_free(s);
    close(fd);
}

static void burst_send(Pair *p)
{
    if (SSL_write(p->pub, p->wire, (int)p->n) != (int)p->n) die("write");
}

static void pairs(int pid, int n_pairs, int burst, int window, int payload, double seconds)
{
    Pair *all = calloc(n_pairs, sizeof *all);
    struct epoll_event events[256];
    static uint8_t buffer[65536];
    int ep = epoll_create1(0);
    for (int i = 0; i < n_pairs; i++) {
        Pair *p = &all[i];
        char id[32], topic[32];
        uint8_t sub[64] = {0x82, 0, 0, 1, 0}, ack[5];
        int t = snprintf(topic, sizeof topic, "pair/%d", i);
        snprintf(id, sizeof id, "pub%d", i);
        p->pub = client(id, NULL);
        snprintf(id, sizeof id, "sub%d", i);
        p->sub = client(id, NULL);
        sub[1] = 5 + t;
        sub[5] = t;
        memcpy(sub + 6, topic, t);
        if (SSL_write(p->sub, sub, 7 + t) != 7 + t) die("write");
        read_exactly(p->sub, ack, 5);
        p->wire = malloc((size_t)burst * (payload + t + 8));
        for (int k = 0; k < burst; k++) {
            uint8_t *w = p->wire + p->n;
            int left = 2 + t + payload;
            *w++ = 0x30;
            do { *w++ = (left & 127) | (left > 127 ? 128 : 0); left >>= 7; } while (left);
            *w++ = 0;
            *w++ = t;
            memcpy(w, topic, t);
            w += t;
            for (int j = 0; j < payload; j++) *w++ = (uint8_t)(i + j + k);
            p->n = w - p->wire;
        }
        fcntl(SSL_get_fd(p->sub), F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
        epoll_ctl(ep, EPOLL_CTL_ADD, SSL_get_fd(p->sub), &e);
    }
    for (int i = 0; i < n_pairs * window; i++) burst_send(&all[i % n_pairs]);
    uint64_t begin_cpu = 0, bursts = 0;
    double begin = now(), begin_measured = 0, end = begin + 0.5 + seconds;
    while (now() < end) {
        if (!begin_measured && now() > begin + 0.5) {
            begin_measured = now();
            begin_cpu = cpu_ns(pid);
            bursts = 0;
        }
        int n = epoll_wait(ep, events, 256, 100);
        for (int i = 0; i < n; i++) {
            Pair *p = events[i].data.ptr;
            for (;;) {
                int got = SSL_read(p->sub, buffer, sizeof buffer), at = 0;
                if (got <= 0) {
                    if (SSL_get_error(p->sub, got) != SSL_ERROR_WANT_READ) die("closed");
                    break;
                }
                while (at < got) {
                    int m = (int)(p->n - p->at) < got - at ? (int)(p->n - p->at) : got - at;
                    if (memcmp(p->wire + p->at, buffer + at, m)) die("wrong bytes");
                    p->at += m;
                    at += m;
                    if (p->at == p->n) {
                        p->at = 0;
                        bursts++;
                        burst_send(p);
                    }
                }
            }
        }
    }
    printf("{\"cpu_ns\": %lu, \"count\": %lu, \"seconds\": %f}\n", cpu_ns(pid) - begin_cpu, bursts * burst, now() - begin_measured);
}

static void connections(int pid, int count, int resumed)
{
    uint8_t bye[2] = {0xE0, 0};
    char id[48];
    finish(client("first", NULL));
    uint64_t begin = cpu_ns(pid);
    double at = now();
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "next-%d-%d", getpid(), i);         /* its worker differs from one to the next, and several loads may run at once */
        SSL *s = client(id, resumed ? session : NULL);
        if (resumed != SSL_session_reused(s)) die(resumed ? "not resumed" : "resumed");
        SSL_write(s, bye, 2);
        uint8_t end;
        SSL_read(s, &end, 1);       /* the broker closes the connection */
        finish(s);
    }
    printf("{\"cpu_ns\": %lu, \"count\": %d, \"seconds\": %f}\n", cpu_ns(pid) - begin, count, now() - at);
}

static void idle(int count)
{
    char id[32];
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "idle%d", i);
        client(id, NULL);
    }
    printf("{\"count\": %d}\n", count);
    fflush(stdout);
    if (!fgets(id, sizeof id, stdin)) return;
}

int main(int argc, char **argv)
{
    if (argc < 5) die("usage: tlsload PORT PID pairs|full|resumed|idle ...");
    int pid = atoi(argv[2]);
    port = atoi(argv[1]);
    ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_session);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (!strcmp(argv[3], "pairs") && argc == 9)
        pairs(pid, atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), atoi(argv[7]), atof(argv[8]));
    else if (!strcmp(argv[3], "full") || !strcmp(argv[3], "resumed"))
        connections(pid, atoi(argv[4]), !strcmp(argv[3], "resumed"));
    else
        idle(atoi(argv[4]));
    return 0;
}
