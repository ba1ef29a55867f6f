/* The same MQTT traffic plain and over WebSocket: pairs of a publisher and a subscriber, QoS 0, `burst` messages per write, at most `window`
 * unanswered writes of a pair. Prints one line of JSON: messages delivered, and the broker's CPU (all threads, nanoseconds) for them.
 *
 *     wsload PORT plain|ws PID [pairs 100] [burst 10] [window 10] [payload 64] [seconds 2]
 *
 * One thread, epoll, libc. Every received byte is compared with the expected one; a difference ends the run with status 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int pub, sub;
    uint8_t *wire, *data;           /* one write of the publisher; the bytes that the subscriber must receive */
    size_t wire_n, data_n, sent, at;
    uint8_t head[10];               /* head of the frame being read */
    size_t head_n, left;
    uint64_t writes, done;          /* bursts written; bursts delivered */
    int blocked;
} Pair;

static int ws, burst = 10, ep;
static uint64_t window = 10;

static void die(const char *what) { fprintf(stderr, "wsload: %s (%s)\n", what, strerror(errno)); exit(1); }

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

/* Write a client's frame around n bytes, or the bytes themselves. */
static size_t wrap(uint8_t *out, const uint8_t *p, size_t n)
{
    static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    size_t at = 0;
    if (!ws) return memcpy(out, p, n), n;
    out[at++] = 0x82;
    if (n < 126) out[at++] = 0x80 | n;
    else if (n < 65536) out[at++] = 0xfe, out[at++] = n >> 8, out[at++] = n;
    else { out[at++] = 0xff; for (int i = 0; i < 8; i++) out[at++] = n >> (56 - 8 * i); }
    memcpy(out + at, mask, 4);
    at += 4;
    for (size_t i = 0; i < n; i++) out[at + i] = p[i] ^ mask[i & 3];
    return at + n;
}

static void put(int fd, const uint8_t *p, size_t n)
{
    uint8_t out[1024];
    n = wrap(out, p, n);
    if (write(fd, out, n) != (ssize_t)n) die("write");
}

static void get(int fd, uint8_t *p, size_t n)
{
    for (ssize_t got; n; p += got, n -= got)
        if ((got = read(fd, p, n)) <= 0) die("closed by the broker");
}

static int dial(int port, const char *id)
{
    static const char upgrade[] = "GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t p[128] = {0x10, 0, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 0}, answer[16];
    size_t n = strlen(id);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(fd, (void *)&a, sizeof a)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (ws) {
        uint8_t end[4] = {0};
        if (write(fd, upgrade, sizeof upgrade - 1) < 0) die("write");
        while (memcmp(end, "\r\n\r\n", 4)) memmove(end, end + 1, 3), get(fd, end + 3, 1);
    }
    p[1] = 12 + n, p[13] = n;
    memcpy(p + 14, id, n);
    put(fd, p, 14 + n);
    get(fd, answer, ws ? 6 : 4);
    if (memcmp(answer + (ws ? 2 : 0), "\x20\x02\0\0", 4)) die("not let in");
    return fd;
}

static void watch(int fd, void *what, uint32_t events, int op)
{
    struct epoll_event e = {.events = events, .data.ptr = what};
    if (epoll_ctl(ep, op, fd, &e)) die("epoll_ctl");
}

static void pair_open(Pair *p, int port, int number, size_t payload)
{
    char id[32], topic[32];
    uint8_t s[64] = {0x82, 0, 0, 1, 0, 0}, answer[16];
    size_t n = snprintf(topic, sizeof topic, "pairs/%04d/data", number);
    snprintf(id, sizeof id, "s%d", number), p->sub = dial(port, id);
    snprintf(id, sizeof id, "p%d", number), p->pub = dial(port, id);
    s[1] = 5 + n, s[5] = n;
    memcpy(s + 6, topic, n);
    put(p->sub, s, 7 + n);
    get(p->sub, answer, ws ? 7 : 5);
    size_t one = 2 + n + payload, head = one < 128 ? 2 : one < 16384 ? 3 : 4;
    p->data_n = burst * (head + one);
    p->data = malloc(p->data_n);
    p->wire = malloc(p->data_n + 14);
    for (int i = 0; i < burst; i++) {
        uint8_t *q = p->data + i * (head + one);
        *q++ = 0x30;
        for (size_t k = one; ; k >>= 7) {
            *q++ = k < 128 ? k : (k | 128);
            if (k < 128) break;
        }
        *q++ = 0, *q++ = n;
        memcpy(q, topic, n);
        for (size_t k = 0; k < payload; k++) q[n + k] = number + i * 7 + k;
    }
    p->wire_n = wrap(p->wire, p->data, p->data_n);
    watch(p->sub, p, EPOLLIN, EPOLL_CTL_ADD);
    watch(p->pub, (char *)p + 1, 0, EPOLL_CTL_ADD);     /* +1 marks the publisher */
}

/* Send each burst with one write, like a client that sends everything it has. */
static void pump(Pair *p)
{
    while (!p->blocked && (p->sent || p->writes - p->done < window)) {
        ssize_t n = send(p->pub, p->wire + p->sent, p->wire_n - p->sent, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) die("send");
        if (n < 0) { p->blocked = 1; watch(p->pub, (char *)p + 1, EPOLLOUT, EPOLL_CTL_MOD); return; }
        p->sent += n;
        if (p->sent == p->wire_n) p->sent = 0, p->writes++;
    }
}

static void took(Pair *p, const uint8_t *q, size_t n)
{
    while (n) {
        size_t k = p->data_n - p->at < n ? p->data_n - p->at : n;
        if (memcmp(p->data + p->at, q, k)) { fprintf(stderr, "wsload: other bytes than were sent\n"); exit(1); }
        p->at += k, q += k, n -= k;
        if (p->at == p->data_n) p->at = 0, p->done++;
    }
}

static void took_wire(Pair *p, const uint8_t *q, size_t n)
{
    while (ws && n) {
        if (p->left) {
            size_t k = p->left < n ? p->left : n;
            took(p, q, k);
            q += k, n -= k, p->left -= k;
            continue;
        }
        p->head[p->head_n++] = *q++, n--;
        size_t want = p->head_n < 2 || p->head[1] < 126 ? 2 : p->head[1] == 126 ? 4 : 10;
        if (p->head_n < want) continue;
        if (p->head[0] != 0x82) { fprintf(stderr, "wsload: not a whole binary frame\n"); exit(1); }
        p->left = want == 2 ? p->head[1] : 0;
        for (size_t i = 2; i < want; i++) p->left = p->left << 8 | p->head[i];
        p->head_n = 0;
    }
    if (!ws) took(p, q, n);
}

static uint64_t delivered(Pair *pairs, int n)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++) total += pairs[i].done * burst;
    return total;
}

int main(int argc, char **argv)
{
    static uint8_t buffer[256 * 1024];
    struct epoll_event events[256];
    if (argc < 4) die("usage: wsload PORT plain|ws PID [pairs] [burst] [window] [payload] [seconds]");
    int pid = atoi(argv[3]), n = argc > 4 ? atoi(argv[4]) : 100;
    size_t payload = argc > 7 ? atoi(argv[7]) : 64;
    double seconds = argc > 8 ? atof(argv[8]) : 2, start = 0, end;
    uint64_t messages = 0, cpu = 0;
    ws = !strcmp(argv[2], "ws");
    if (argc > 5) burst = atoi(argv[5]);
    if (argc > 6) window = atoi(argv[6]);
    ep = epoll_create1(0);
    Pair *pairs = calloc(n, sizeof *pairs);
    for (int i = 0; i < n; i++) pair_open(&pairs[i], atoi(argv[1]), i, payload);
    for (int i = 0; i < n; i++) pump(&pairs[i]);
    for (double warm = now() + 0.5;;) {
        int k = epoll_wait(ep, events, 256, 100);
        for (int i = 0; i < k; i++) {
            Pair *p = (Pair *)((uintptr_t)events[i].data.ptr & ~(uintptr_t)1);
            if (events[i].data.ptr != p) { p->blocked = 0; watch(p->pub, (char *)p + 1, 0, EPOLL_CTL_MOD); }
            else {
                ssize_t got = recv(p->sub, buffer, sizeof buffer, MSG_DONTWAIT);
                if (got == 0 || (got < 0 && errno != EAGAIN)) die("closed by the broker");
                if (got > 0) took_wire(p, buffer, got);
            }
            pump(p);
        }
        if (!start && now() > warm) start = now(), messages = delivered(pairs, n), cpu = cpu_ns(pid);
        else if (start && (end = now()) > start + seconds) break;
    }
    messages = delivered(pairs, n) - messages;
    cpu = cpu_ns(pid) - cpu;
    printf("{\"messages\": %lu, \"seconds\": %.3f, \"cpu_ns\": %lu}\n", messages, end - start, cpu);
    return 0;
}
