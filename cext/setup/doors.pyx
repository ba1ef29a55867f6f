"""What the control plane gives as a listener, checked and turned into a `Door`. Knows names and ranges; not sockets (listen.py)."""

from cext.setup.listen import port_of
from cext.setup.settings import LEVELS

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from cext.base.view cimport View
from cext.broker.broker cimport Door, Security
from cext.net.reactor cimport Listener, TransportContext
from cext.setup.security cimport security_free
from cext.setup.views cimport view_keep

AUTO_ID_PREFIX_MAX = 50


cdef Door* door_new(dict spec, list keep) except NULL:
    cdef Door* d = <Door*>calloc(1, sizeof(Door))
    if d == NULL:
        raise MemoryError
    try:
        door_read(d, spec, keep)
    except BaseException:
        door_free(d)
        raise
    return d


cdef int choice_of_level(dict spec) except -1:
    level = spec.get("durability") or ""
    if level not in LEVELS:
        raise ValueError(f"durability is {level!r}; it must be one of {', '.join(filter(None, LEVELS))}")
    return LEVELS[level]


cdef int door_read(Door* d, dict spec, list keep) except -1:
    d.port = int(spec.get("port") or 0)
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
    if spec.get("certfile") or spec.get("keyfile") or spec.get("psk_hint"):
        from cext.setup.tls import secure_new    # a broker without TLS does not load libssl
        d.secure = <TransportContext*><size_t>secure_new(spec)
    return 0


cdef int tickets_keep(Door* old, Door* new) except -1:
    if old.secure != NULL and new.secure != NULL:
        from cext.setup.tls import tickets_copy
        tickets_copy(<size_t>old.secure, <size_t>new.secure)
    return 0


def choice_read(spec, name, default, choices):
    """The place of the value among those that there are."""
    value = spec.get(name) or default
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(str, choices))}")
    return choices.index(value)


cdef int origins_read(Door* d, origins, list keep) except -1:
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


cdef void door_free(Door* d) noexcept nogil:
    if d != NULL:
        free(<void*>d.upgrade.origins)
        if d.secure != NULL:
            d.secure.release(d.secure)
    free(d)


cdef list listeners_new(list opened, Door* d):
    """Their addresses. d.port becomes the one that the system gave."""
    cdef Listener* l
    made = []
    for s in opened:
        l = <Listener*>calloc(1, sizeof(Listener))
        if l == NULL:
            raise MemoryError
        made.append(<size_t>l)
        l.fd = s.fileno()
        l.owner = d
        l.port = d.port = port_of(s)
    return made


cdef void lists_free(Security** securities, uint32_t n_securities, Door** doors, uint32_t n_doors) noexcept:
    cdef uint32_t i
    if securities != NULL:
        for i in range(n_securities):
            security_free(securities[i])
    if doors != NULL:
        for i in range(n_doors):
            door_free(doors[i])
    free(securities)
    free(doors)
