# cython: wraparound=True
"""The door between the planes: what the control plane may ask of the data plane. Everything here validates, converts and waits; the loop
itself runs without the GIL.

Errors: ValueError for a setting that makes no sense (names it), OSError for a socket that cannot be opened, RuntimeError for a question to a
broker that does not run.
"""

import os
import struct

import _socket

from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.base.view cimport View
from cext.broker.acl cimport ACL_DENY, ACL_READ, ACL_WRITE, acl_new
from cext.broker.broker cimport Broker, Door, ShareRule, broker_fini, broker_init, broker_run
from cext.broker.log cimport LogRecord, log_swap
from cext.broker.mailbox cimport ASK_ADOPT, ASK_CLIENTS, ASK_KICK, ASK_STATS, ASK_STOP, Ask, mailbox_ask, mailbox_open
from cext.broker.share cimport (
    SHARE_HASH_CLIENT, SHARE_HASH_TOPIC, SHARE_LEAST_INFLIGHT, SHARE_RANDOM, SHARE_ROUND_ROBIN, SHARE_STICKY,
)
from cext.net.reactor cimport Listener, reactor_listen
from cext.session.session cimport EXPIRY_NEVER
from cext.topic.options cimport (
    CHILD_HASH_THRESHOLD, INDEX_FULL, INDEX_HASH, INDEX_LETTER, INDEX_SCAN, INDEX_TREE, LETTERS_OF_MODE, LETTERS_OFF, LETTERS_ON,
    NEVER_HASHED,
)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

DROPS = ("queue_messages", "queue_bytes", "qos0_blocked", "output_bytes", "packet_size", "expired", "acl_read", "acl_write",
         "memory", "payload_size", "quota", "session_ended", "retained")
MODES = {"full": INDEX_FULL, "letter": INDEX_LETTER, "hash": INDEX_HASH, "tree": INDEX_TREE, "scan": INDEX_SCAN}
LETTER_CHOICES = {"": LETTERS_OF_MODE, "27": LETTERS_ON, "off": LETTERS_OFF}
REFUSALS = ("max_connections", "global_max_connections", "global_max_clients", "descriptors", "memory")
# the order of answer_stats in broker/mailbox.pyx
STATS = ("clients_connected", "clients_total", "clients_max", "clients_expired", "connections", "sockets",
         "messages_in", "messages_out", "publish_in", "publish_out", "publish_bytes_in", "publish_bytes_out",
         "publish_dropped", "bytes_in", "bytes_out", "unsent_bytes", "store_messages", "store_bytes",
         "subscriptions", "shared_subscriptions", "filters", "index_nodes", "index_bytes", "retained", "retained_tree_bytes",
         "buffers_used_bytes", "buffers_idle_bytes", "pool_used", "pool_idle", "shed",
         *(f"drops_{name}" for name in DROPS), *(f"refused_{name}" for name in REFUSALS), "work")
ACL_ACCESS = {"read": ACL_READ, "write": ACL_WRITE, "readwrite": ACL_READ | ACL_WRITE, "deny": ACL_DENY}
SHARE_STRATEGIES = {"round_robin": SHARE_ROUND_ROBIN, "random": SHARE_RANDOM, "sticky": SHARE_STICKY,
                    "least_inflight": SHARE_LEAST_INFLIGHT, "hash_topic": SHARE_HASH_TOPIC, "hash_client": SHARE_HASH_CLIENT}
BACKLOG = 1024
SO_BINDTODEVICE = 25


cdef View view_keep(list keep, value):
    """A View of text or bytes; `keep` keeps the bytes alive."""
    cdef View v
    cdef bytes b = value.encode() if isinstance(value, str) else bytes(value or b"")
    keep.append(b)
    v.p = <const uint8_t*><const char*>b
    v.n = <uint32_t>len(b)
    return v


cdef class Engine:
    """One broker. `settings`: option name to value (see mosq/settings.py); `listeners`: a dict each; `acl`: rules in file order as
    (user or None, 'topic' | 'pattern', access, topic), or None: everything is allowed."""
    cdef Broker b
    cdef list keep              # bytes that the broker's views point into
    cdef list specs
    cdef list sockets
    cdef int event
    cdef bint made
    cdef Listener* listeners
    cdef bint nodelay

    def __cinit__(self, settings, listeners, acl=None):
        self.keep = []
        self.specs = list(listeners)
        self.sockets = []
        self.event = -1
        memset(&self.b, 0, sizeof(Broker))
        self.b.reactor.ep = self.b.reactor.wake_fd = self.b.reactor.spare_fd = -1
        self._configure(dict(settings))
        cdef int err = broker_init(&self.b)
        self.made = True
        if err:
            raise OSError(err, os.strerror(err))
        self.b.log.mask = <uint32_t>int(settings.get("log_mask", 15))
        if acl is not None:
            self._access(list(acl))
        self._doors()
        self.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.event < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.made:
            broker_fini(&self.b)
        free(self.b.doors)
        free(self.b.settings.share_rules)
        free(self.listeners)
        if self.event >= 0:
            os.close(self.event)

    # ------------------------------------------------------------ set-up

    def _configure(self, s):
        def number(name, default, low=0, high=0xFFFFFFFF):
            value = int(s.get(name, default))
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must be between {low} and {high}")
            return value
        t = &self.b.settings
        inflight = number("max_inflight_messages", 20, 0, 65535)
        t.max_inflight_messages = inflight or 65535
        t.receive_maximum = inflight
        t.max_inflight_bytes = number("max_inflight_bytes", 0, 0, 2**63)
        t.max_queued_messages = number("max_queued_messages", 1000)
        t.max_queued_bytes = number("max_queued_bytes", 0, 0, 2**63)
        t.packet_max = number("max_packet_size", 2000000, 0, 268435460)
        t.message_size_limit = number("message_size_limit", 0, 0, 268435455)
        t.memory_limit = number("memory_limit", 0, 0, 2**63)
        t.global_max_clients = number("global_max_clients", -1, -1, 2**31)
        t.global_max_connections = number("global_max_connections", -1, -1, 2**31)
        t.max_keepalive_s = number("max_keepalive", 0, 0, 65535)
        t.connect_timeout_ms = number("connect_timeout", 20, 1, 86400) * 1000
        expiry = number("persistent_client_expiration", -1, -1, 2**40)
        t.persistent_expiry_s = EXPIRY_NEVER if expiry < 0 else min(expiry, EXPIRY_NEVER - 1)
        t.sys_interval_s = number("sys_interval", 10, 0, 65535)
        t.max_output_bytes = number("max_output_bytes", 64 << 20, 65536, 2**31)
        t.turn_budget = number("turn_budget", 200_000, 1000, 2**31)
        t.topic_levels_max = number("max_topic_levels", 200, 1, 200)
        t.queue_qos0 = number("queue_qos0_messages", 0, 0, 1)
        t.upgrade_outgoing_qos = number("upgrade_outgoing_qos", 0, 0, 1)
        t.allow_duplicate_messages = number("allow_duplicate_messages", 1, 0, 1)
        t.check_retain_source = number("check_retain_source", 0, 0, 1)
        t.retain_available = number("retain_available", 1, 0, 1)
        t.allow_zero_length_clientid = number("allow_zero_length_clientid", 1, 0, 1)
        t.connection_messages = number("connection_messages", 1, 0, 1)
        t.acl_refuse_subscribe = number("acl_refuse_subscribe", 0, 0, 1)
        policy = s.get("receive_maximum_policy", "log")
        if policy not in ("log", "disconnect"):
            raise ValueError(f"receive_maximum_policy is {policy!r}; it must be log or disconnect")
        t.receive_maximum_disconnect = policy == "disconnect"
        self._tuning(s, number)
        t.clientid_prefixes = view_keep(self.keep, s.get("clientid_prefixes") or "")
        t.version = view_keep(self.keep, s.get("version") or "mosq")
        self.nodelay = bool(int(s.get("set_tcp_nodelay", 1)))
        self._sharing(s.get("shared_strategy") or "")

    def _sharing(self, text):
        """`text`: lines `STRATEGY` or `STRATEGY GROUP`; the last for a group counts."""
        cdef uint32_t i
        cdef ShareRule* rules
        codes = {}
        for line in text.split("\n") if text else ():
            strategy, _, group = line.partition(" ")
            if strategy not in SHARE_STRATEGIES:
                raise ValueError(f"shared_strategy is {strategy!r}; it must be one of {', '.join(SHARE_STRATEGIES)}")
            codes[group.encode()] = SHARE_STRATEGIES[strategy]
        self.b.settings.share_strategy = codes.pop(b"", SHARE_ROUND_ROBIN)
        if not codes:
            return
        rules = <ShareRule*>calloc(len(codes), sizeof(ShareRule))
        if rules == NULL:
            raise MemoryError
        self.b.settings.share_rules = rules
        self.b.settings.n_share_rules = <uint32_t>len(codes)
        for i, group in enumerate(sorted(codes, key=lambda name: (len(name), name))):     # looked up by halving
            rules[i].group = view_keep(self.keep, group)
            rules[i].strategy = codes[group]

    def _tuning(self, s, number):
        def choice(name, default, choices):
            value = s.get(name, default)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
            return choices[value]
        t = &self.b.settings
        t.index.mode = choice("index", "full", MODES)
        t.index.letters = choice("letter_index", "", LETTER_CHOICES)
        t.index.hash_buckets = number("hash_buckets", 0, 0, 1 << 24)
        t.index.child_hash_threshold = number("child_hash_threshold", CHILD_HASH_THRESHOLD) or NEVER_HASHED
        t.index.match_cache = number("match_cache", 4096, 0, 1 << 20)
        pool = choice("pool", "on", {"on": True, "off": False})
        t.pool_grow = number("pool_grow", 1000, 1, 1 << 20) if pool else 1
        t.pool_idle_max = number("pool_idle_max", 10_000) if pool else 0

    def _access(self, rules):
        cdef uint32_t n = <uint32_t>len(rules)
        cdef uint32_t i
        cdef View* views = <View*>calloc(2 * n + 1, sizeof(View))
        cdef uint8_t* codes = <uint8_t*>calloc(2 * n + 1, 1)
        keep = []
        try:
            if views == NULL or codes == NULL:
                raise MemoryError
            for i, (user, kind, access, topic) in enumerate(rules):
                if user is not None:
                    views[i] = view_keep(keep, user)
                views[n + i] = view_keep(keep, topic)
                codes[i] = kind == "pattern"
                codes[n + i] = <uint8_t><int>ACL_ACCESS[access]
            self.b.acl = acl_new(views, views + n, codes, codes + n, n)
            if self.b.acl == NULL:
                raise MemoryError
        finally:
            free(views)
            free(codes)

    def _doors(self):
        cdef Door* d
        cdef int i
        self.b.doors = <Door*>calloc(len(self.specs) + 1, sizeof(Door))
        if self.b.doors == NULL:
            raise MemoryError
        self.b.n_doors = <uint32_t>len(self.specs)
        # the one after the last is for adopted connections: nothing is refused there
        for i, spec in enumerate([*self.specs, {"allow_anonymous": True, "max_topic_alias": 0, "max_topic_alias_broker": 0}]):
            d = &self.b.doors[i]
            d.port = int(spec.get("port") or 0)
            d.allow_anonymous = bool(spec.get("allow_anonymous"))
            d.max_qos = int(spec.get("max_qos", 2))
            d.versions = int(spec.get("versions", 0b111000))
            d.use_username_as_clientid = bool(spec.get("use_username_as_clientid"))
            d.alias_max_in = int(spec.get("max_topic_alias", 10))
            d.alias_max_out = int(spec.get("max_topic_alias_broker", 10))
            d.max_connections = int(spec.get("max_connections", -1))
            d.auto_id_prefix = view_keep(self.keep, spec.get("auto_id_prefix", "auto-"))
            if d.auto_id_prefix.n > 50:
                raise ValueError("auto_id_prefix is longer than 50 bytes")
            d.mount_point = view_keep(self.keep, spec.get("mount_point") or "")

    def open(self):
        """Binds and listens on every listener. A listener without a host gets IPv4 and IPv6 in two sockets, as in Mosquitto."""
        try:
            self._open()
        except BaseException:
            self._close()        # all or none
            raise

    def _close(self):
        for s in self.sockets:
            s.close()
        self.sockets = []

    def _open(self):
        pairs = [(i, fd) for i, spec in enumerate(self.specs) for fd in self._sockets_of(spec)]
        cdef Listener* l
        cdef int at, err
        self.listeners = <Listener*>calloc(len(pairs) + 1, sizeof(Listener))
        if self.listeners == NULL:
            raise MemoryError
        for at, (i, fd) in enumerate(pairs):
            l = &self.listeners[at]
            l.fd = fd
            l.owner = &self.b.doors[i]
            l.port = self.b.doors[i].port = self._port(fd)
            err = reactor_listen(&self.b.reactor, l)
            if err:
                raise OSError(err, os.strerror(err))

    def _sockets_of(self, spec):
        if spec.get("path"):
            return [self._bind(_socket.AF_UNIX, spec["path"], spec)]
        host = spec.get("host") or None
        family = {"ipv4": _socket.AF_INET, "ipv6": _socket.AF_INET6}.get(spec.get("socket_domain") or "", 0)
        try:
            found = _socket.getaddrinfo(host, int(spec["port"]), family, _socket.SOCK_STREAM, 0, _socket.AI_PASSIVE)
        except _socket.gaierror as error:
            raise OSError(error.errno, f"listener {spec['port']} {host}: {error.strerror}") from None
        fds = []
        port = 0
        for family, _, _, _, address in found:
            if port:
                address = (address[0], port, *address[2:])      # port 0: the same free port for both families
            try:
                fds.append(self._bind(family, address, spec))
            except OSError as error:
                if family == _socket.AF_INET6 and (fds or len(found) > 1) and error.errno in (97, 99):
                    continue     # a machine without IPv6
                raise
            port = self.sockets[-1].getsockname()[1]
        return fds

    def _bind(self, family, address, spec):
        s = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC, 0)
        try:
            if family == _socket.AF_UNIX:
                try:
                    os.unlink(address)
                except FileNotFoundError:
                    pass
            else:
                s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
                if self.nodelay:
                    # what a listening socket has, its connections inherit: no system call per connection
                    s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
                if family == _socket.AF_INET6:
                    s.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
                if spec.get("bind_interface"):
                    s.setsockopt(_socket.SOL_SOCKET, SO_BINDTODEVICE, spec["bind_interface"].encode())
            s.bind(address)
            s.listen(BACKLOG)
        except OSError as error:
            s.close()
            where = address if family == _socket.AF_UNIX else f"{address[0]} port {address[1]}"
            raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from None
        self.sockets.append(s)
        return s.fileno()

    def _port(self, fd):
        for s in self.sockets:
            if s.fileno() == fd:
                name = s.getsockname()
                return name[1] if isinstance(name, tuple) else 0
        return 0

    # ------------------------------------------------------------ running

    def run(self, started=None):
        """Runs the loop until stop(), without the GIL, in the calling thread. Raises OSError when the loop itself fails. `started()` is
        called when questions are taken: what is asked from then on waits for the loop's first turn."""
        cdef int err
        if started is not None:
            mailbox_open(&self.b)
            started()
        with nogil:
            err = broker_run(&self.b, self.event)
        self._close()
        if err:
            raise OSError(err, os.strerror(err))

    cdef int _ask(self, Ask* a) except -2:
        cdef int result
        with nogil:
            result = mailbox_ask(&self.b, a)
        return result

    def stop(self):
        """Asks the loop to end; returns when it has heard. Any thread; no-op when it does not run."""
        cdef Ask a
        memset(&a, 0, sizeof(a))
        a.kind = ASK_STOP
        self._ask(&a)

    def event_fd(self):
        """A descriptor that is readable when drain() has something."""
        return self.event

    def drain(self):
        """What the data plane has to say since the last call: [('log', seconds, type bit, text)]. One reader."""
        cdef uint32_t n = 0
        cdef uint32_t at = 0
        cdef uint64_t lost = 0
        cdef const uint8_t* p
        cdef const LogRecord* record
        out = []
        try:
            os.read(self.event, 8)
        except BlockingIOError:
            pass
        p = log_swap(&self.b.log, &n, &lost)
        while at < n:
            record = <const LogRecord*>(p + at)
            text = (<const char*>record)[sizeof(LogRecord):sizeof(LogRecord) + record.n].decode("utf-8", "replace")
            out.append(("log", record.seconds, record.type, text))
            at += (<uint32_t>sizeof(LogRecord) + record.n + 7) & ~<uint32_t>7
        if lost:
            out.append(("log", out[-1][1] if out else 0, 2, f"Warning: {lost} log lines were lost, the log could not be written fast enough."))
        return out

    def ports(self):
        """The port of each listener, in the order of the configuration (unix sockets: 0)."""
        return [self.b.doors[i].port for i in range(self.b.n_doors)]

    def stats(self):
        """Counters and gauges by name; see STATS."""
        cdef Ask a
        memset(&a, 0, sizeof(a))
        a.kind = ASK_STATS
        if self._ask(&a) != 0:
            raise RuntimeError("the broker is not running")
        return {name: a.stats[i] for i, name in enumerate(STATS)}

    def clients(self):
        """Who is connected: a dict each with id, username, address, port, version, keepalive, subscriptions, pending, unsent_bytes. Asked for in slices."""
        cdef Ask a
        cdef int result
        found = []
        memset(&a, 0, sizeof(a))
        a.kind = ASK_CLIENTS
        while True:
            result = self._ask(&a)
            data = (<const char*>a.out)[:a.out_n] if a.out != NULL else b""
            free(a.out)
            a.out = NULL
            a.out_n = a.out_cap = 0
            if result != 0:
                raise RuntimeError("the broker is not running") if result < 0 else MemoryError()
            found.extend(_clients_read(data))
            if a.next_index == 0:
                return found
            a.from_index = a.next_index

    def kick(self, client_id):
        """Ends the connection of a client (v5: DISCONNECT 0x98). False: there is none with this id."""
        cdef Ask a
        cdef bytes text = client_id.encode()
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = ASK_KICK
        a.text = <uint8_t*><char*>text
        a.text_n = <uint32_t>len(text)
        result = self._ask(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        return result == 0

    def adopt(self, int fd):
        """Hands a connected, non-blocking stream socket over: the broker owns and trusts it."""
        cdef Ask a
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = ASK_ADOPT
        a.fd = fd
        result = self._ask(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        if result:
            raise OSError(result, os.strerror(result))


def _clients_read(data):
    at = 0
    while at < len(data):
        numbers = struct.unpack_from("=6I", data, at)
        at += 24
        texts = []
        for _ in range(3):
            (n,) = struct.unpack_from("=H", data, at)
            texts.append(data[at + 2:at + 2 + n].decode("utf-8", "replace"))
            at += 2 + n
        yield {"id": texts[0], "username": texts[1] or None, "address": texts[2] or None, "port": numbers[5] or None,
               "version": numbers[0], "keepalive": numbers[1], "subscriptions": numbers[2], "pending": numbers[3],
               "unsent_bytes": numbers[4]}
