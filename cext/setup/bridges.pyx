"""Check the control plane's specifications of bridges and make `Bridge`s from them. This module knows names, ranges and units. It does not know
their effect, or addresses, which come with each attempt to connect. Each specification becomes one block of memory, so the loop can free it
without knowing its content.

The first bridge loads this module: a broker without bridges does not load the room.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cext.base.view cimport View
from cext.bridge.lifecycle cimport bridge_free, bridges_prepare
from cext.broker.auth.bridge cimport spec_free
from cext.broker.core.bridge_state cimport BRIDGES_MAX, Bridge, BridgeSpec, Bridges, NAME_ROOM_BYTES, VIA_BYTES
from cext.codec.frame cimport V31, V311, V5
from cext.codec.utf8 cimport utf8_check
from cext.net.conn_state cimport Address, TransportContext
from cext.topic.lines cimport LINES_MAX, LINE_IN, LINE_OUT, Line, NOT_GRANTED, line_prepare
from cext.topic.name cimport Filter, filter_parse, name_check

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6

BRIDGE_TEXT_MAX = 65535
DIRECTIONS = {"in": LINE_IN, "out": LINE_OUT, "both": LINE_IN | LINE_OUT}
BRIDGE_VERSIONS = (V31, V311, V5)


cdef class Texts:
    """The bytes that follow the struct, and their positions."""
    cdef list parts
    cdef uint32_t n

    def __cinit__(self):
        self.parts = []
        self.n = 0

    cdef tuple add(self, bytes text):
        at = self.n
        self.parts.append(text)
        self.n += <uint32_t>len(text)
        return at, len(text)


cdef bridge_number(dict spec, str name, default, low, high):
    value = int(spec.get(name, default) or 0)
    if not low <= value <= high:
        raise ValueError(f"bridge {spec.get('name')}: {name} is {value}; it must be between {low} and {high}")
    return value


cdef bytes text_encoded(dict spec, str what, value):
    encoded = value.encode() if isinstance(value, str) else bytes(value)
    if len(encoded) > BRIDGE_TEXT_MAX:
        raise ValueError(f"bridge {spec.get('name')}: {what} is longer than {BRIDGE_TEXT_MAX} bytes")
    return encoded


cdef bytes utf8_of(dict spec, str what, value):
    encoded = text_encoded(spec, what, value)
    if utf8_check(<const uint8_t*><const char*>encoded, <uint32_t>len(encoded)) != 0:
        raise ValueError(f"bridge {spec.get('name')}: {what} holds characters that MQTT does not allow")
    return encoded


cdef tuple line_of(dict spec, dict line):
    """Return (directions, qos, maps, local, remote, start of the remote filter, local prefix, remote prefix)."""
    cdef Filter f
    cdef Filter g
    name = spec.get("name")
    local, remote = utf8_of(spec, "topic", line["local"]), utf8_of(spec, "topic", line["remote"])
    local_prefix = utf8_of(spec, "local prefix", line.get("local_prefix") or "")
    remote_prefix = utf8_of(spec, "remote prefix", line.get("remote_prefix") or "")
    if filter_parse(<const uint8_t*><const char*>local, <uint32_t>len(local), &f) != 0 or f.group.n:
        raise ValueError(f"bridge {name}: {line['local']!r} is not a topic filter for this broker")
    if filter_parse(<const uint8_t*><const char*>remote, <uint32_t>len(remote), &g) != 0:
        raise ValueError(f"bridge {name}: {line['remote']!r} is not a topic filter for the remote broker")
    for prefix, whole in ((local_prefix, local), (remote_prefix, remote)):
        if not whole.startswith(prefix) or b"+" in prefix or b"#" in prefix:
            raise ValueError(f"bridge {name}: {prefix.decode()!r} is no prefix of {whole.decode()!r}")
    if line["direction"] not in DIRECTIONS:
        raise ValueError(f"bridge {name}: direction is {line['direction']!r}; it must be one of {', '.join(DIRECTIONS)}")
    qos = int(line["qos"])
    if not 0 <= qos <= 2:
        raise ValueError(f"bridge {name}: {qos} is no quality of service")
    return (DIRECTIONS[line["direction"]], qos, bool(local_prefix or remote_prefix), local, remote, len(remote) - g.filter.n, local_prefix,
            remote_prefix)


cdef int address_set(dict spec, Address* a) except -1:
    cdef bytes packed
    text = spec.get("bind")
    memset(a, 0, sizeof(Address))
    if not text:
        return 0
    import ipaddress  # takes 1 ms, and few brokers need it
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise ValueError(f"bridge {spec.get('name')}: bind is {text!r}; it must be an address of this machine") from error
    packed = address.packed
    a.family = <uint8_t>(AF_INET if address.version == 4 else AF_INET6)
    memcpy(a.ip, <const char*>packed, len(packed))
    return 0


cdef int spec_numbers_set(BridgeSpec* s, dict spec) except -1:
    version = int(spec.get("version", V311))
    if version not in BRIDGE_VERSIONS:
        raise ValueError(f"bridge {spec.get('name')}: version is {version}; it must be 3, 4 or 5")
    s.version = version
    for flag in ("clean_start", "local_clean", "try_private", "notifications", "notifications_local_only", "attempt_unsubscribe"):
        spec.setdefault(flag, False)
    s.clean_start = bool(spec["clean_start"])
    s.local_clean = bool(spec["local_clean"])
    s.try_private = bool(spec["try_private"])
    s.notifications = bool(spec["notifications"])
    s.notify_local_only = bool(spec["notifications_local_only"])
    s.attempt_unsubscribe = bool(spec["attempt_unsubscribe"])
    s.outgoing_retain = bool(spec.get("outgoing_retain", True))
    s.loop_guard = bool(spec.get("loop_guard", False)) and s.version == V5
    s.reload_lazy = bool(spec.get("reload_lazy", True))
    s.keepalive_s = bridge_number(spec, "keepalive_s", 60, 0, 65535)
    s.receive_max = bridge_number(spec, "receive_maximum", 0, 0, 65535)
    s.alias_max = bridge_number(spec, "topic_alias_max", 10, 0, 65535)
    s.session_expiry_s = bridge_number(spec, "session_expiry_s", 0, 0, 0xFFFFFFFF)
    s.packet_max = bridge_number(spec, "packet_max", 0, 0, 0xFFFFFFFF)
    s.packet_max_in = bridge_number(spec, "packet_max_in", 0, 0, 0xFFFFFFFF)
    s.threshold = bridge_number(spec, "threshold", 0, 0, 0xFFFFFFFF)
    s.idle_ms = bridge_number(spec, "idle_ms", 0, 0, 0xFFFFFFFF)
    s.connect_timeout_ms = bridge_number(spec, "connect_timeout_ms", 20_000, 1, 3_600_000)
    s.user_timeout_ms = bridge_number(spec, "user_timeout_ms", 0, -1, 0x7FFFFFFF) if int(spec.get("user_timeout_ms") or 0) > 0 else 0
    s.tcp_idle_s, s.tcp_interval_s, s.tcp_count = (int(part) for part in spec.get("tcp_keepalive") or (0, 0, 0))
    return address_set(spec, &s.bound)


cdef inline View view_at(const uint8_t* texts, tuple place):
    cdef View v
    v.p = NULL
    v.n = 0
    if place is not None:
        v.p = texts + <size_t>place[0]
        v.n = place[1]
    return v


cdef BridgeSpec* spec_new(dict given) except NULL:
    cdef dict spec = dict(given)
    cdef Texts texts = Texts()
    cdef BridgeSpec* s
    cdef uint8_t* base
    cdef Line* line
    cdef uint32_t i, n
    lines = [line_of(spec, each) for each in spec.get("topics") or ()]
    if len(lines) > LINES_MAX:
        raise ValueError(f"bridge {spec.get('name')}: {len(lines)} topics are more than {LINES_MAX}")
    name, local_id = texts.add(utf8_of(spec, "name", spec["name"])), texts.add(utf8_of(spec, "local_clientid", spec["local_clientid"]))
    remote_id = texts.add(utf8_of(spec, "remote_clientid", spec["remote_clientid"]))
    if not local_id[1]:
        raise ValueError(f"bridge {spec['name']}: local_clientid is empty")
    username = None if spec.get("remote_username") is None else texts.add(utf8_of(spec, "remote_username", spec["remote_username"]))
    password = None if spec.get("remote_password") is None else texts.add(text_encoded(spec, "remote_password", spec["remote_password"]))
    notice = utf8_of(spec, "notification_topic", spec.get("notification_topic") or "")
    if spec.get("notifications") and name_check(<const uint8_t*><const char*>notice, <uint32_t>len(notice)) != 0:
        raise ValueError(f"bridge {spec['name']}: {spec.get('notification_topic')!r} is no topic for notifications")
    notice_at = texts.add(notice)
    places = [tuple(texts.add(part) for part in (row[3], row[4], row[6], row[7])) for row in lines]
    n = <uint32_t>len(lines)
    s = <BridgeSpec*>calloc(1, sizeof(BridgeSpec) + <size_t>n * sizeof(Line) + texts.n + 1)
    if s == NULL:
        raise MemoryError
    s.bytes_n = <uint32_t>(sizeof(BridgeSpec) + n * sizeof(Line) + texts.n + 1)
    try:
        spec_numbers_set(s, spec)
        s.key = <uint64_t>(hash(repr(sorted(given.items()))) & 0xFFFFFFFFFFFFFFFF)
        s.lines.at = <Line*>(s + 1)
        s.lines.n = n
        base = <uint8_t*>(s.lines.at + n)
        joined = b"".join(texts.parts)
        memcpy(base, <const char*>joined, texts.n)
        s.name, s.local_id, s.remote_id = view_at(base, name), view_at(base, local_id), view_at(base, remote_id)
        s.username, s.password, s.notice = view_at(base, username), view_at(base, password), view_at(base, notice_at)
        for i in range(n):
            line = &s.lines.at[i]
            ways, qos, maps, _, _, cut, _, _ = lines[i]
            line.ways, line.qos, line.maps, line.granted = ways, qos, maps, NOT_GRANTED
            line.local, line.remote_whole = view_at(base, places[i][0]), view_at(base, places[i][1])
            line.remote = line.remote_whole
            line.remote.p += <uint32_t>cut
            line.remote.n -= <uint32_t>cut
            line.local_prefix, line.remote_prefix = view_at(base, places[i][2]), view_at(base, places[i][3])
            line_prepare(line)
            if maps:
                s.lines.maps_in |= ways & LINE_IN
                s.lines.maps_out |= ways & LINE_OUT
        if spec.get("tls"):
            from cext.setup.tls_outward import outward_new
            s.tls_context = <TransportContext*><size_t>outward_new(dict(spec["tls"]))
    except BaseException:
        spec_free(s)
        raise
    return s


cdef int bridges_read(list specs, Bridge*** out) except -1:
    cdef uint32_t i
    cdef Bridge** at
    if len(specs) > BRIDGES_MAX:
        raise ValueError(f"{len(specs)} bridges are more than {BRIDGES_MAX}")
    for what in ("name", "local_clientid"):
        values = [spec[what] for spec in specs]
        for value in values:
            if values.count(value) > 1:
                raise ValueError(f"two bridges have the same {what}: {value!r}")
    at = <Bridge**>calloc(len(specs) + 1, sizeof(Bridge*))
    if at == NULL:
        raise MemoryError
    try:
        for i, spec in enumerate(specs):
            at[i] = <Bridge*>calloc(1, sizeof(Bridge))
            if at[i] == NULL:
                raise MemoryError
            at[i].spec = spec_new(dict(spec))
            listener_set(at[i])
    except BaseException:
        bridges_drop(at, <uint32_t>len(specs))
        raise
    out[0] = at
    return 0


cdef void listener_set(Bridge* l) noexcept nogil:
    l.listener.max_qos = 2
    l.listener.max_connections = -1
    l.listener.allow_anonymous = 1


cdef void bridges_drop(Bridge** at, unsigned int n) noexcept nogil:
    cdef uint32_t i
    if at != NULL:
        for i in range(n):
            if at[i] != NULL:
                bridge_free(at[i])
    free(at)


cdef int via_set(Bridges* bridges) except -1:
    """Make the user property by which this broker recognises messages that passed it: its name, and a random number."""
    cdef bytes encoded = b"\x26\x00\x08mosq-via\x00\x10" + os.urandom(8).hex().encode()
    assert len(encoded) == VIA_BYTES
    memcpy(bridges.via, <const char*>encoded, VIA_BYTES)
    return 0


cdef Bridges* bridges_new(list specs) except NULL:
    cdef Bridges* bridges = <Bridges*>calloc(1, sizeof(Bridges))
    cdef Bridge** at = NULL
    if bridges == NULL:
        raise MemoryError
    bridges.room = <uint8_t*>malloc(NAME_ROOM_BYTES)
    try:
        if bridges.room == NULL:
            raise MemoryError
        via_set(bridges)
        bridges_read(specs, &at)
    except BaseException:
        free(bridges.room)
        free(bridges)
        raise
    bridges.at = at
    bridges.n = <uint32_t>len(specs)
    bridges_prepare(bridges)
    return bridges
