"""The control plane's interface of the data plane. All functions here validate, convert and wait; the loop itself runs without the GIL. cext/setup
makes structs from dictionaries.

Errors: ValueError for an invalid setting (names it), OSError for a socket that cannot be opened, RuntimeError for a request to a broker that does
not run.
"""

import os
import struct

cimport cython
from cext.setup.listen import close, set_nodelay, shared_socket, sockets_of

from libc.errno cimport E2BIG, EINVAL, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.broker.admin.control_request cimport (
    CONTROL_ADOPT, CONTROL_ATTACH, CONTROL_CLIENTS, CONTROL_DROPS, CONTROL_FREEZE, CONTROL_FROZEN, CONTROL_HOT, CONTROL_KICK, CONTROL_LEAVE,
    CONTROL_LINK, CONTROL_LINKS, CONTROL_LISTENER_DROPS, CONTROL_OBSERVED, CONTROL_RELOAD,
    CONTROL_RELOAD_OVER, CONTROL_ROLES, CONTROL_SESSION, CONTROL_SESSIONS, CONTROL_SLOW, CONTROL_STATS, CONTROL_STOP, CONTROL_STREAMS,
    CONTROL_SUBSCRIPTIONS, CONTROL_THAW, CONTROL_TRACE, CONTROL_TRACE_STOP, CONTROL_WHOLE, CONTROL_WIRE,
    ControlRequest,
)
from cext.broker.admin.mailbox cimport mailbox_open, mailbox_post
from cext.broker.admin.reload cimport Reload
from cext.broker.core.bridge_state cimport bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable
from cext.broker.core.listener cimport ORIGIN_SHARED, Listener, Security
from cext.broker.core.trace_state cimport TraceSpec
from cext.broker.core.log cimport LOG_WARNING, LogAbout, LogRecord, log_push, log_swap
from cext.broker.lifecycle.reload_hold cimport reload_covers, reload_hold_put
from cext.broker.lifecycle.wires cimport WireOrder
from cext.broker.loop.broker_loop cimport broker_fini, broker_init, broker_run
from cext.broker.rules.roles cimport Roles, roles_unref
from cext.net.conn_state cimport ListenSocket
from cext.net.reactor cimport reactor_listen
from cext.net.system cimport AF_INET, AF_INET6
from cext.setup.listeners cimport listen_sockets_new, listener_free, listener_new, lists_free, origin_of
from cext.setup.persist cimport attachable, attachable_free, persist
from cext.setup.requests cimport answers_give, records_of, requests_take
from cext.setup.roles cimport roles_read
from cext.setup.security cimport security_free, security_new, security_place
from cext.setup.traces cimport events_take, losses_of, spec_read
from cext.setup.settings cimport settings_free, settings_read

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

# bytes of the pool for a connection
CONTEXT_BYTES = (sizeof(Client) + 15) & ~15
# settings of the listener of adopted connections: it refuses nothing
ADOPTED = {"allow_anonymous": True, "max_topic_alias": 0, "max_topic_alias_broker": 0}


def specs_of(settings, listeners, securities):
    """Return the listeners' settings, with those that are the same for all, and those of their securities."""
    return [{**spec, "tls_keylog": settings.get("tls_keylog") or "",
             "psk_native": securities[spec.get("security", 0)].get("psk_native")
             if securities and spec.get("security", 0) < len(securities) else None} for spec in listeners]


@cython.no_gc_clear             # __dealloc__ closes the store, whose files the collector must not clear first
cdef class Engine:
    """One broker. `settings`: option name to value (see mosq/server/settings.py); `listeners`: dicts, whose `security` is a position in
    `securities`, also dicts (cext/setup/security.pyx); without any, everything is allowed. `bridges`: dicts (cext/setup/bridges.pyx); an empty list: another
    worker has some."""

    def __cinit__(self, settings, listeners, securities=None, bridges=()):
        self.keep = []
        self.keep_adopted = []
        self.keep_before = []
        self.gone = []
        self.specs = specs_of(settings, listeners, securities)
        self.sockets = [[] for _ in self.specs]
        self.watched = [[] for _ in self.specs]
        self.event = self.reload_fd = -1
        memset(&self.b, 0, sizeof(Broker))
        self.b.reactor.ep = self.b.reactor.wake_fd = self.b.reactor.spare_fd = -1
        settings_read(&self.b.settings, dict(settings), self.keep)
        self.nodelay = bool(int(settings.get("set_tcp_nodelay", 1)))
        cdef int err = broker_init(&self.b)
        self.made = True
        if err:
            raise OSError(err, os.strerror(err))
        self.b.log.mask = <uint32_t>int(settings.get("log_mask", 15))
        self.b.log.json = bool(int(settings.get("log_json", 0)))
        self._listeners_new(list(securities or [{}]))
        self._keylog_logged(settings)
        if bridges != ():
            from cext.bridge_control import bridges_start
            bridges_start(self, list(bridges))
        self.open_ports = [spec.get("port") or 0 for spec in self.specs]
        self.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.event < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.made:
            broker_fini(&self.b)
        if self.b.bridges != NULL:
            bridges_of(&self.b).ops.free(bridges_of(&self.b))
        lists_free(self.b.securities, self.b.n_securities, self.b.listeners, self.b.n_listeners)
        gone_listeners_free(&self.b)
        security_free(self.b.denied)
        listener_free(self.b.adopted)
        settings_free(&self.b.settings)
        for addresses in [*(self.watched or ()), self.gone or ()]:
            for address in addresses:
                free(<void*><size_t>address)
        for fd in (self.event, self.reload_fd):
            if fd >= 0:
                os.close(fd)

    # ------------------------------------------------------------ set-up

    def _keylog_logged(self, settings):
        path = settings.get("tls_keylog")
        for line in (f"TLS key logging to '{path}' enabled for all listeners.", "TLS key logging is for DEBUGGING only.") if path else ():
            text = line.encode()
            if self.b.log.mask & LOG_WARNING:
                log_push(&self.b.log, LOG_WARNING, self.b.reactor.now_s, <const char*>text, <int>len(text))

    cdef int _listeners_new(self, list securities) except -1:
        cdef uint32_t i
        self.b.securities = <Security**>calloc(len(securities) + 1, sizeof(Security*))
        self.b.listeners = <Listener**>calloc(len(self.specs) + 1, sizeof(Listener*))
        if self.b.securities == NULL or self.b.listeners == NULL:
            raise MemoryError
        for i, spec in enumerate(securities):
            self.b.securities[i] = security_new(spec)
            self.b.securities[i].place = i
            self.b.n_securities = i + 1
        for i, spec in enumerate(self.specs):
            self.b.listeners[i] = listener_new(spec, self.keep)
            self.b.n_listeners = i + 1
            self.b.listeners[i].security = self.b.securities[security_place(spec, len(securities))]
        self.b.denied = security_new({"acl": []})
        self.b.adopted = listener_new(ADOPTED, self.keep_adopted)
        self.b.adopted.security = self.b.securities[0]
        return 0

    def persist(self, directory, durability="group", interval_ms=2, segment_bytes=0, streams=(), files=None):
        """Open the store in a directory, with its streams, and restore its content; before open(). See cext/setup/persist.pyx, streams.pyx.
        `files`: file operations for all of it instead of the system's (mosq._redis.LogFiles); the directory is then a part of the files' names."""
        self.files = files
        return persist(&self.b, directory, durability, interval_ms, segment_bytes, list(streams), files)

    def attach(self, directory, durability="group", interval_ms=2):
        """Take a new store into use while the loop runs, with all that the broker has now. Raise OSError with a text for users; then the broker has
        no store, and the folder may contain files of one."""
        cdef Durable* t = attachable(directory, durability, interval_ms)
        cdef ControlRequest a
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_ATTACH
        a.reload = t
        result = self._request(&a)
        if result:
            attachable_free(t)
            raise OSError("the broker does not run" if result < 0 else f"the store in {directory} cannot be used: {os.strerror(result)}")

    def open(self, shared=None):
        """Bind and listen on every listener. `shared`: for each listener, descriptors that listen already, and from which other processes accept too."""
        cdef ListenSocket* l
        cdef int err
        try:
            for i, spec in enumerate(self.specs):
                if shared is None:
                    self.sockets[i] = self._sockets_given(spec) or sockets_of(spec, self.nodelay)
                else:
                    self.sockets[i] = [shared_socket(fd) for fd in shared[i]]
                self.watched[i] = listen_sockets_new(self.sockets[i], self.b.listeners[i])
                self.open_ports[i] = self.b.listeners[i].port
                for address in self.watched[i]:
                    l = <ListenSocket*><size_t>address
                    l.shared = shared is not None
                    err = reactor_listen(&self.b.reactor, l)
                    if err:
                        raise OSError(err, os.strerror(err))
            self.given = None    # the other process may have had more listeners: their sockets close
        except BaseException:
            self._close()        # all or none
            raise

    def _sockets_given(self, spec):
        """Return the sockets that the process before had for this listener; an empty list if it had none."""
        for place, (origin, sockets) in enumerate(self.given or ()):
            if origin == origin_of(spec) & ~<uint32_t>ORIGIN_SHARED:
                del self.given[place]
                for s in sockets:
                    set_nodelay(s, self.nodelay)
                return sockets
        return []

    def _close(self):
        for opened in self.sockets:
            close(opened)
        self.sockets = [[] for _ in self.specs]

    def reload(self, settings, listeners, securities=None, bridges=()):
        """Replace the configuration while the broker runs. All steps that can fail happen before anything changes, or are undone: after ValueError,
        OSError and MemoryError the old one is in force. The settings with which the index and the pool were built stay.

        A listener is the same if its address is: its sockets stay open, its settings change. The connections of removed listeners end. A bridge is
        the same if its name is.
        """
        self.prepare_reload(settings, listeners, securities, bridges).commit()

    def prepare_reload(self, settings, listeners, securities=None, bridges=()):
        """Check a new configuration, and prepare it. Return an object whose commit() puts it into force. Raise ValueError, OSError and
        MemoryError. The listeners must be those of the present one: then commit() fails only if the broker does not run."""
        from cext.renewal import Renewal

        fresh = None
        if bridges != () or self.b.bridges != NULL:
            from cext.bridge_control import Fresh
            fresh = Fresh(self, list(bridges))
        renewal = Renewal(self, dict(settings), specs_of(settings, listeners, securities), list(securities or [{}]), fresh)
        renewal.prepare()
        return renewal

    def watch_reload(self, number):
        """Hold CONNECT packets from the arrival of the signal `number` on, until hold_connects(False) or for three seconds. Return a
        descriptor that is readable while the signal is pending; reading from it takes the signal. All threads must block the signal. Call
        this before run(). Raises OSError."""
        from cext.workers_control import watch_signal
        self.reload_fd = watch_signal(number)
        self.b.reload_signal = number
        return self.reload_fd

    def begin_reload(self, uint64_t reloads):
        """Let the next hold_connects(False) of a worker end the reload for so many signals, see reload_counted()."""
        reload_covers(&self.b, reloads)

    def hold_connects(self, bint held):
        """Begin or end a reload. Begin before the signal is taken from its descriptor."""
        cdef ControlRequest a
        reload_hold_put(&self.b, held)
        if not held:
            memset(&a, 0, sizeof(a))
            a.kind = CONTROL_RELOAD_OVER
            self._request(&a)

    cdef int _reload(self, Reload* r) except -1:
        cdef ControlRequest a
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_RELOAD
        a.reload = r
        result = self._request(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        if result:
            raise OSError(result, os.strerror(result))
        return 0

    # ------------------------------------------------------------ workers

    def join(self, int place, bytes key, passages, news, int counts_fd, int parent_status=-1, uint64_t reloads=0):
        """Make this broker the worker number `place` (from 0) of len(passages) workers; before open(). `key`: 16 secret bytes, the same for all; `passages`:
        descriptors of SOCK_SEQPACKET sockets to each worker, the own one to receive from; `news`: an eventfd of each worker (-1 in both: it is on another machine); `counts_fd`: memory for
        counts, see counts_bytes(). The engine makes copies of these descriptors. `parent_status`: the open file /proc/PARENT/status, or -1; `reloads`: what
        reload_counted() had returned for the configuration of this worker. Raise OSError."""
        from cext.workers_control import workers_new
        workers_new(<size_t>&self.b, place, key, list(passages), list(news), counts_fd, parent_status, reloads)

    def replace_passage(self, int place, int fd):
        """Send connections for another worker into this socket from now on. The engine makes a copy of it. Any thread; only for one of several
        workers. Raise OSError."""
        from cext.workers_control import passage_replace
        passage_replace(<size_t>&self.b, place, fd)

    def note_logins(self, failed, refused):
        """Note the counts of logins of this process, for the sums of all workers. Any thread; only for one of several workers."""
        from cext.workers_control import logins_note
        logins_note(<size_t>&self.b, failed, refused)

    def link(self, int place, int out_fd, int in_fd):
        """Give the running engine two stream sockets to another worker: one to write to, one to read from. They belong to the engine. A second call
        replaces the links of the first. -1: the process of the other worker has ended."""
        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_LINK
        a.from_index = place
        a.fd = out_fd
        a.cursor = <uint32_t>in_fd
        if self._request(&a) != 0:
            for fd in (out_fd, in_fd):
                if fd >= 0:
                    os.close(fd)
            raise RuntimeError("the broker is not running")

    def wire(self, int place, int what, int fd=-1, int strangers_fd=-1, bytes key=b"", bytes ip=b"", int port=0, unsigned int scope=0):     # parameters: of a WireOrder
        """Give the running engine an order about a worker on another machine: WIRE_... of cext/broker/lifecycle/wires.pxd. Descriptors belong to the engine.
        `ip`: 4 or 16 bytes; `key`: 16 bytes, or none."""
        cdef ControlRequest a
        cdef WireOrder o
        memset(&a, 0, sizeof(a))
        memset(&o, 0, sizeof(o))
        if len(key) not in (0, sizeof(o.key)) or len(ip) not in (0, 4, 16):
            raise ValueError("a key or an address of another size")
        o.what, o.fd, o.strangers_fd = what, fd, strangers_fd
        o.known = len(key) != 0
        memcpy(&o.key, <const char*>key, len(key))
        o.remote.family = AF_INET if len(ip) == 4 else AF_INET6 if ip else 0
        memcpy(o.remote.ip, <const char*>ip, len(ip))
        o.remote.port, o.scope = <uint16_t>port, scope
        a.kind = CONTROL_WIRE
        a.from_index = place
        a.reload = &o
        if self._request(&a) != 0:
            for one in (fd, strangers_fd):
                if one >= 0:
                    os.close(one)
            raise RuntimeError("the broker is not running")

    def wires_fd(self):
        """Return a descriptor that is readable when links_wanted() has changed; -1: all workers are on this machine."""
        from cext.workers_control import wires_descriptor
        return wires_descriptor(<size_t>&self.b)

    def links_wanted(self):
        """Return the workers on other machines to which a link is needed since the last call. Only one thread may call this."""
        from cext.workers_control import wires_wanted
        return wires_wanted(<size_t>&self.b)

    # ------------------------------------------------------------ running

    def run(self, started=None):
        """Run the loop until stop(), without the GIL, in the calling thread. Raise OSError if the loop itself fails. `started()` is called when
        control requests are accepted: requests from then on wait for the loop's first turn."""
        cdef int err
        if started is not None:
            mailbox_open(&self.b)
            started()
        with nogil:
            err = broker_run(&self.b, self.event)
        self._close()
        if err:
            raise OSError(err, os.strerror(err))

    cdef int _request(self, ControlRequest* a) except -2:
        cdef int result
        with nogil:
            result = mailbox_post(&self.b, a)
        return result

    def stop(self):
        """Stop the loop, and return when it has received the request. Any thread; no-op if it does not run."""
        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_STOP
        self._request(&a)

    def moves(self):
        """Note that this worker stops here to start at another node: when the loop stops, clients of version 5 learn that they may use
        another server [v5 4.11]. Call this before stop()."""
        self.b.moves = 1

    def event_fd(self):
        """Return a descriptor that is readable while drain() or requests() has something."""
        return self.event

    def drain(self):
        """Return the log lines since the last call, as LogLine records. Only one thread may call drain()."""
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
        if n == 0 and lost == 0:
            return out
        records = records_of()
        while at < n:
            record = <const LogRecord*>(p + at)
            text = (<const char*>record)[sizeof(LogRecord):sizeof(LogRecord) + record.n].decode("utf-8", "replace")
            about = _about(p + at + sizeof(LogRecord) + record.n) if record.about_n else ()
            out.append(records.LogLine(record.seconds, record.type, text, *about))
            at += (<uint32_t>sizeof(LogRecord) + record.n + record.about_n + 7) & ~<uint32_t>7
        if lost:
            out.append(records.LogLine(out[len(out) - 1].seconds if out else 0, LOG_WARNING,
                                       f"Warning: {lost} log lines were lost, the log could not be written fast enough."))
        return out

    def requests(self):
        """Return the requests of the data plane since the last call, as records (mosq/records.py). event_fd() is readable while there are
        requests. Only one thread may call requests()."""
        return requests_take(&self.b)

    def answer(self, answers):
        """Send answers, as records (mosq/records.py), to the loop without waiting for it. Any thread may call this. An answer that is too late,
        or for a client that is gone, has no effect. On an exception (AttributeError, TypeError, ValueError, MemoryError) none has an effect."""
        answers_give(&self.b, list(answers))

    def ports(self):
        """Return the port of each listener, in the order of the configuration (unix sockets: 0)."""
        return list(self.open_ports)

    def stats(self):
        """Return all statistics by name; docs/sys.md lists them with their units."""
        from mosq.stat_names import ALIASES, STATS

        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_STATS
        if self._request(&a) != 0:
            raise RuntimeError("the broker is not running")
        found = {name: a.stats[i] for i, name in enumerate(STATS) if name is not None}
        for alias, name in ALIASES.items():
            found[alias] = found[name]
        return found

    def whole(self):
        """Return the WholeFigures of all workers. Only for one of several workers."""
        from cext.setup.inspection import whole_read

        return whole_read(self._asked(CONTROL_WHOLE), self._asked(CONTROL_LISTENER_DROPS), records_of())

    def link_figures(self):
        """Return the figures of the link to each other worker, as dicts (cext/setup/inspection.pyx); none for a broker that is alone."""
        from cext.setup.inspection import links_read

        return links_read(self._asked(CONTROL_LINKS))

    def observed(self):
        """Return what is measured with `observe_messages`: the histograms by name, as (durations, sum in ns, number in each bucket), and the
        numbers of `lost` and `passed_over` probes; None if nothing is measured."""
        from cext.setup.inspection import observed_read

        data = self._asked(CONTROL_OBSERVED)
        return observed_read(data) if data else None

    def hot(self, what):
        """Return a sketch of the sampled messages, "topics", "publishers", "receivers" or "delays", as a HotNames; None if nothing is observed."""
        from cext.setup.inspection import HOT, hot_read

        data = self._asked(CONTROL_HOT, <uint32_t>HOT.index(what))
        return hot_read(data, what, records_of()) if data else None

    def slow(self, position=0, limits=(0, 0, 0, 0)):
        """Return a SlowSlice: the connected clients of one slice of the sessions whose queue or output is above one of `limits`, and sums of the slice.
        The limits: queued deliveries, their bytes, milliseconds of age, unsent bytes."""
        from cext.setup.inspection import slow_read

        cdef ControlRequest a
        cdef int i
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_SLOW
        a.cursor = <uint32_t>position
        for i in range(4):
            a.stats[i] = <uint64_t>limits[i]
        result, data = self._request_bytes(&a)
        if result:
            raise MemoryError
        return records_of().SlowSlice(slow_read(data, records_of()), a.cursor, a.stats[4], a.stats[5], a.stats[6])     # SUM_... of hot.pyx

    def streams(self):
        """Return the gauges of each stream, by its name: a dict with the names of docs/sys.md."""
        from cext.setup.inspection import streams_read

        return streams_read(self._asked(CONTROL_STREAMS))

    def drop_examples(self):
        """Return the last drop of each reason that had one: a dict from the reason to a dict with time (Unix), client_id (None: no client),
        topic, and whether these are cut."""
        from cext.setup.inspection import drops_read

        return drops_read(self._asked(CONTROL_DROPS))

    def listener_drops(self):
        """Return the drops by listener and reason: a dict from the listener (its port, host:port or path) to a dict from the reason to a number.
        The listener "other" has the drops without a connected client of these listeners, so the sums are the drops of the broker."""
        from cext.setup.inspection import listener_drops_read

        return listener_drops_read(self._asked(CONTROL_LISTENER_DROPS))

    def clients(self):
        """Return the connected clients, in slices: dicts with id, username, address, port, version, keepalive, subscriptions, pending,
        unsent_bytes."""
        cdef ControlRequest a
        found = []
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_CLIENTS
        while True:
            result, data = self._request_bytes(&a)
            if result:
                raise MemoryError
            found.extend(_clients_read(data))
            if a.next_index == 0:
                return found
            a.from_index = a.next_index

    def subscriptions(self, most=100_000):
        """Return a SubscriptionListing of all subscriptions, at most `most`. The loop answers in slices: a client that connects or leaves during
        the call may be listed or not."""
        cdef ControlRequest a
        found = []
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_SUBSCRIPTIONS
        while True:
            result, data = self._request_bytes(&a)
            if result:
                raise MemoryError
            room = max(0, most - len(found))
            rows = list(_subscriptions_read(data))
            found.extend(rows[:room])
            a.left_out += max(0, len(rows) - room)
            if a.cursor == 0:
                return records_of().SubscriptionListing(found, a.left_out)

    def bridge(self, name, what, sockaddr=None, host=None, try_private=False, fd=-1):
        """Command a bridge; any thread, returns at once. ("connect", (family, numeric host, port), host): one attempt, which ends with exactly one
        BridgeEvent "up", "down" or "refused"; `fd`: a connected, non-blocking socket to use. "close": no-op without a connection. Raise KeyError
        if no bridge has this name; OSError with EALREADY, or if it cannot begin."""
        from cext.bridge_control import bridge_command
        bridge_command(self, name, what, sockaddr, host, try_private, fd)

    def bridges(self):
        """Return name, state (down, opening, asking, up), pending deliveries and their bytes of each bridge."""
        if self.b.bridges == NULL:
            return []
        from cext.bridge_control import bridge_states
        return bridge_states(self)

    def sessions(self, cursor=0, most=1000):
        """Return a SessionSlice of about `most` sessions, beginning at `cursor`. A slice may have fewer sessions, also before the last, because
        the loop looks at 1000 buckets at most, and ends after 1 MiB of records. A session that begins or ends between two calls may be listed or not; none is listed twice."""
        from cext.setup.inspection import sessions_read

        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_SESSIONS
        a.cursor = <uint32_t>cursor
        a.from_index = <uint32_t>most
        result, data = self._request_bytes(&a)
        if result:
            raise MemoryError
        return records_of().SessionSlice(sessions_read(data), a.cursor)

    def session(self, client_id, skip=0):
        """Return the SessionDetail of a client id, its subscriptions from number `skip` on; None if there is no such session. Raise ValueError if
        `skip` is too large."""
        from cext.setup.inspection import session_read

        cdef ControlRequest a
        cdef bytes text = client_id.encode()
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_SESSION
        a.text = <uint8_t*><char*>text
        a.text_n = <uint32_t>len(text)
        a.from_index = <uint32_t>skip
        result, data = self._request_bytes(&a)
        if result == 1:
            return None
        if result == E2BIG:
            raise ValueError(f"cannot skip {skip} subscriptions")
        if result:
            raise MemoryError
        records = records_of()
        found, rows = session_read(data)
        return records.SessionDetail(found, [records.SessionSubscription(*row) for row in rows], a.left_out)

    cdef tuple _request_bytes(self, ControlRequest* a):
        """Return (result, output of the loop)."""
        cdef int result = self._request(a)
        data = (<const char*>a.out)[:a.out_n] if a.out != NULL else b""
        free(a.out)
        a.out = NULL
        a.out_n = a.out_cap = 0
        if result < 0:
            raise RuntimeError("the broker is not running")
        return result, data

    cdef bytes _asked(self, uint8_t kind, uint32_t index=0):
        """Return the output of a request that has no other result. Raise MemoryError if the loop had no room for it."""
        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = kind
        a.from_index = index
        result, data = self._request_bytes(&a)
        if result:
            raise MemoryError
        return data

    def kick(self, client_id):
        """End the connection of a client (v5: DISCONNECT 0x98). Return False if no client has this id."""
        cdef ControlRequest a
        cdef bytes text = client_id.encode()
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_KICK
        a.text = <uint8_t*><char*>text
        a.text_n = <uint32_t>len(text)
        result = self._request(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        return result == 0

    def trace(self, spec):
        """Begin a trace (cext/setup/traces.pyx describes the dict). Return (its number, its slot). Raise ValueError for an invalid spec, and
        OSError with EAGAIN if there are as many as possible."""
        cdef ControlRequest a
        cdef TraceSpec s
        cdef int result
        cdef bytes what = spec["what"]
        memset(&a, 0, sizeof(a))
        spec_read(&s, dict(spec), what)
        a.kind = CONTROL_TRACE
        a.reload = &s
        result = self._request(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        if result:
            raise OSError(result, os.strerror(result))
        return s.id, s.slot

    def trace_stop(self, number):
        """End a trace. Return False if there is none with this number."""
        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_TRACE_STOP
        a.left_out = number
        return self._request(&a) == 0

    def trace_events(self):
        """Return the events of all traces since the last call, as TraceEvent records. event_fd() is readable while there are events. Only one
        thread may call this."""
        return events_take(&self.b)

    def trace_losses(self, slot):
        """Return (events above the rate, events that found no room) of the newest trace in a slot."""
        return losses_of(&self.b, slot)

    def set_roles(self, spec, places):
        """Replace the roles (cext/setup/roles.pyx) of the securities at these positions, between two turns; those without roles keep none. Raise
        ValueError if the roles are invalid, and keep the old ones."""
        cdef ControlRequest a
        cdef uint32_t i, place
        cdef Roles* made
        cdef int result
        cdef list wanted = [place for place in places]
        memset(&a, 0, sizeof(a))
        self.rules_set += 1
        a.kind = CONTROL_ROLES
        a.n_swap = <uint32_t>max(wanted, default=-1) + 1
        a.swap = <Roles**>calloc(a.n_swap + 1, sizeof(Roles*))
        if a.swap == NULL:
            raise MemoryError
        made = NULL
        try:
            made = roles_read(dict(spec))
            for place in wanted:
                if a.swap[place] == NULL:
                    a.swap[place] = made
                    made.refs += 1
            result = self._request(&a)
        finally:
            for i in range(a.n_swap):
                roles_unref(a.swap[i])
            roles_unref(made)
            free(a.swap)
        if result < 0:
            raise RuntimeError("the broker is not running")

    # ------------------------------------------------------------ handover

    def freeze(self, sealing=()):
        """Freeze the running loop, and return its state for another process: the descriptor of a memory file, which the caller closes; the
        descriptors of the connections, 4 bytes each, which still belong to the loop; and a dict of numbers. Then call thaw() or leave(). Raise OSError with a
        reason if it cannot be done; then the loop goes on. sealing: numbers of listeners, as sealing_listeners() of the other process."""
        from cext.takeover import counts_read

        cdef ControlRequest a
        cdef uint32_t i
        for i in range(self.b.n_listeners):
            self.b.listeners[i].moves_tls = self.b.listeners[i].origin & ~<uint32_t>ORIGIN_SHARED in sealing
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_FREEZE
        result = self._request(&a)
        if result:
            raise OSError(result if result > 0 else EINVAL, "the broker does not run, or is frozen already")
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_FROZEN
        result, data = self._request_bytes(&a)
        if result:
            raise OSError(result, data.decode("utf-8", "replace") or os.strerror(result))
        return a.fd, data, counts_read(<size_t>&a.stats[0])

    def thaw(self):
        """Let the frozen loop go on as if nothing had happened. No other process may have the store open any more."""
        cdef ControlRequest a
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_THAW
        self._request(&a)

    def leave(self):
        """End the frozen loop without a word to its clients: another process has them."""
        cdef ControlRequest a
        for opened in self.sockets:
            for s in opened:
                s.file = None       # it belongs to the other process
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_LEAVE
        self._request(&a)

    def listening(self):
        """Return (number that identifies the listener, descriptors of its sockets) for each listener."""
        return [(origin_of(spec) & ~<uint32_t>ORIGIN_SHARED, [s.fileno() for s in opened])
                for spec, opened in zip(self.specs, self.sockets, strict=True)]

    def sealing_listeners(self):
        """Return the numbers of the listeners whose TLS records this process seals itself, so that it can take over their connections."""
        if not any(spec.get("tls_compact_records") for spec in self.specs):
            return []
        from cext.setup.tls import compact_refusal

        return [] if compact_refusal() else [origin_of(spec) & ~<uint32_t>ORIGIN_SHARED for spec in self.specs if spec.get("tls_compact_records")]

    def arrive(self, int state_fd, fds, listening):
        """Take over the state of another process, before open() and after persist(). `fds`, 4 bytes each, belong to this engine from now on. `listening`: as
        listening() of the other engine, with descriptors of this process. Return a dict of numbers. Raise OSError with the reason; then the
        engine must not run."""
        from cext.takeover import state_arrives
        from cext.setup.listen import socket_of_fd

        counts = state_arrives(<size_t>&self.b, state_fd, fds)
        self.given = [(origin, [socket_of_fd(fd) for fd in sockets]) for origin, sockets in listening]
        return counts

    def adopt(self, int fd):
        """Hand a connected, non-blocking stream socket over: the broker owns and trusts it."""
        cdef ControlRequest a
        cdef int result
        memset(&a, 0, sizeof(a))
        a.kind = CONTROL_ADOPT
        a.fd = fd
        result = self._request(&a)
        if result < 0:
            raise RuntimeError("the broker is not running")
        if result:
            raise OSError(result, os.strerror(result))


cdef tuple _about(const uint8_t* p):
    """Return the fields of a LogLine after `text`."""
    cdef LogAbout about
    memcpy(&about, p, sizeof(LogAbout))
    cdef const char* text = <const char*>p + sizeof(LogAbout)
    return (about.milliseconds, text[:about.id_n].decode("utf-8", "replace"),
            text[about.id_n:about.id_n + about.address_n].decode("ascii", "replace"), about.port, about.listener)


def _subscriptions_read(data):
    row = records_of().SubscriptionRow
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from("=H", data, at)
        client_id = data[at + 2:at + 2 + n].decode("utf-8", "replace")
        options, n_filter = struct.unpack_from("=BI", data, at + 2 + n)
        at += 7 + n
        yield row(client_id, data[at:at + n_filter].decode("utf-8", "replace"), options & 3)
        at += n_filter


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


cdef void gone_listeners_free(Broker* b) noexcept:
    cdef Listener* d
    cdef Security* s
    while b.gone != NULL:
        d = b.gone
        b.gone = d.gone_next
        listener_free(d)
    while b.gone_securities != NULL:
        s = b.gone_securities
        b.gone_securities = s.gone_next
        security_free(s)
