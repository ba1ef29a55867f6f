"""Check the control plane's specifications of listeners and make `Listener`s from them. This module knows names and ranges. It does not know
sockets (listen.py)."""

from cext.setup.listen import port_of
from cext.setup.settings import DURABILITY_LEVELS

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.core.listener cimport ORIGIN_ADDRESS_SHIFT, ORIGIN_KNOWN, ORIGIN_SHARED, Listener, Security
from cext.net.address cimport Network
from cext.net.conn_state cimport ListenSocket, TransportContext
from cext.setup.security cimport security_free
from cext.setup.views cimport view_keep

AUTO_ID_PREFIX_MAX = 50
UNIX_PEERS = "unix"


cdef Listener* listener_new(dict spec, list keep) except NULL:
    cdef Listener* d = <Listener*>calloc(1, sizeof(Listener))
    if d == NULL:
        raise MemoryError
    try:
        listener_read(d, spec, keep)
    except BaseException:
        listener_free(d)
        raise
    return d


cdef uint32_t origin_of(dict spec) except 0:
    """Return the listener as the store keeps it. `own_rules` of the specification: only this listener has its security. The hash must never
    change, because stores contain it (FNV-1a, folded)."""
    cdef uint32_t value = 2166136261u, byte
    for byte in "\0".join(str(spec.get(name) or "") for name in ("host", "path", "bind_interface", "socket_domain")).encode("utf-8", "surrogateescape"):
        value = (value ^ byte) * 16777619u
    value = (value ^ value >> 14 ^ value >> 28) & 0x3FFF or 1
    return ORIGIN_KNOWN | (0 if spec.get("own_rules") else ORIGIN_SHARED) | value << ORIGIN_ADDRESS_SHIFT | <uint32_t>int(spec.get("port") or 0)


cdef int choice_of_level(dict spec) except -1:
    level = spec.get("durability") or ""
    if level not in DURABILITY_LEVELS:
        raise ValueError(f"durability is {level!r}; it must be one of {', '.join(filter(None, DURABILITY_LEVELS))}")
    return DURABILITY_LEVELS[level]


cdef int listener_read(Listener* d, dict spec, list keep) except -1:
    d.port = int(spec.get("port") or 0)
    d.origin = origin_of(spec)
    d.kind = int(spec.get("kind", 0))
    d.name = view_keep(keep, str(spec.get("path") or spec.get("host") or "").encode("utf-8", "surrogateescape"))
    d.allow_anonymous = bool(spec.get("allow_anonymous"))
    d.allow_zero_length_clientid = bool(spec.get("allow_zero_length_clientid", True))
    d.durability = choice_of_level(spec)
    d.max_qos = int(spec.get("max_qos", 2))
    d.versions = int(spec.get("versions", 0b111000))
    d.use_username_as_clientid = bool(spec.get("use_username_as_clientid"))
    d.alias_max_in = int(spec.get("max_topic_alias", 10))
    d.alias_max_out = int(spec.get("max_topic_alias_broker", 10))
    d.max_connections = int(spec.get("max_connections", -1))
    d.auto_id_prefix = view_keep(keep, spec.get("auto_id_prefix", "auto-"))
    if d.auto_id_prefix.n > AUTO_ID_PREFIX_MAX:
        raise ValueError(f"auto_id_prefix is longer than {AUTO_ID_PREFIX_MAX} bytes")
    d.mount_point = view_keep(keep, spec.get("mount_point") or "")
    d.renames = d.mount_point.n != 0
    d.require_certificate = bool(spec.get("require_certificate"))
    d.use_identity_as_username = bool(spec.get("use_identity_as_username"))
    d.proxy_version = choice_read(spec, "enable_proxy_protocol", 0, (0, 1, 2))
    d.proxy_require_tls = bool(spec.get("proxy_protocol_v2_require_tls"))
    d.websockets = choice_read(spec, "protocol", "mqtt", ("mqtt", "websockets"))
    d.use_subject_as_username = bool(spec.get("use_subject_as_username"))
    origins_read(d, spec.get("websockets_origin") or (), keep)
    trusted_proxies_read(d, spec.get("websockets_trusted_proxy") or ())
    if spec.get("certfile") or spec.get("keyfile") or spec.get("psk_hint"):
        from cext.setup.tls import listener_tls_context
        d.tls_context = <TransportContext*><size_t>listener_tls_context(spec)
    return 0


cdef int tickets_keep(Listener* old, Listener* new) except -1:
    if old.tls_context != NULL and new.tls_context != NULL:
        from cext.setup.tls import tickets_copy
        tickets_copy(<size_t>old.tls_context, <size_t>new.tls_context)
    return 0


def choice_read(spec, name, default, choices):
    """Return the position of the value among the choices. Raise ValueError if it is none of them."""
    value = spec.get(name) or default
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(str, choices))}")
    return choices.index(value)


cdef int origins_read(Listener* d, origins, list keep) except -1:
    cdef View* views
    cdef uint32_t i
    if isinstance(origins, str):
        origins = (origins,)
    if not origins:
        return 0
    views = <View*>calloc(len(origins), sizeof(View))
    if views == NULL:
        raise MemoryError
    d.upgrade.origins = views
    for i, origin in enumerate(origins):
        views[i] = view_keep(keep, origin)
        d.upgrade.n_origins = i + 1
    return 0


cdef int trusted_proxies_read(Listener* d, proxies) except -1:
    """Read networks, `192.0.2.0/24`, or `unix`. Raise ValueError for others."""
    cdef uint32_t i
    cdef bytes ip
    if isinstance(proxies, str):
        proxies = (proxies,)
    d.trusts_unix = UNIX_PEERS in proxies
    networks = [network_of(proxy) for proxy in proxies if proxy != UNIX_PEERS]
    if not networks:
        return 0
    d.trusted_proxies = <Network*>calloc(len(networks), sizeof(Network))
    if d.trusted_proxies == NULL:
        raise MemoryError
    for i, (ip, bits) in enumerate(networks):
        memcpy(d.trusted_proxies[i].ip, <const char*>ip, 16)
        d.trusted_proxies[i].bits = bits
        d.n_trusted_proxies = i + 1
    return 0


def network_of(text):
    """Return (address of 16 bytes, significant bits) of a network; IPv4 is mapped into IPv6. Raise ValueError."""
    from ipaddress import ip_network
    network = ip_network(text, strict=False)
    if network.version == 4:
        return b"\0" * 10 + b"\xff\xff" + network.network_address.packed, 96 + network.prefixlen
    return network.network_address.packed, network.prefixlen


cdef void listener_free(Listener* d) noexcept nogil:
    if d != NULL:
        free(<void*>d.upgrade.origins)
        free(d.trusted_proxies)
        if d.tls_context != NULL:
            d.tls_context.release(d.tls_context)
    free(d)


cdef list listen_sockets_new(list opened, Listener* d):
    """Return the addresses of new ListenSockets. d.port becomes the port that the system gave."""
    cdef ListenSocket* l
    made = []
    for s in opened:
        l = <ListenSocket*>calloc(1, sizeof(ListenSocket))
        if l == NULL:
            raise MemoryError
        made.append(<size_t>l)
        l.fd = s.fileno()
        l.owner = d
        l.port = d.port = port_of(s)
    return made


cdef void lists_free(Security** securities, uint32_t n_securities, Listener** listeners, uint32_t n_listeners) noexcept:
    cdef uint32_t i
    if securities != NULL:
        for i in range(n_securities):
            security_free(securities[i])
    if listeners != NULL:
        for i in range(n_listeners):
            listener_free(listeners[i])
    free(securities)
    free(listeners)
