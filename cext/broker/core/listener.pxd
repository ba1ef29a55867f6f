# A listener with its settings, and the rules that count for its clients.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.stats cimport DROP_REASONS
from cext.broker.rules.acl cimport Acl
from cext.broker.rules.roles cimport Roles
from cext.net.address cimport Network
from cext.net.conn_state cimport TransportContext
from cext.net.upgrade cimport UpgradeRules

cdef enum:
    # The origin of a session or a message, as the store keeps it: the listener through which it came. Positions in a configuration change
    # from start to start; an address and a port do not.
    ORIGIN_KNOWN = 0x80000000u      # without this flag: a position in the list of securities, which older versions stored
    ORIGIN_SHARED = 0x40000000      # the rules of the listener were those of the whole broker
    ORIGIN_ADDRESS = 0x3FFF0000     # hash of address, path, interface and family; 0 = unknown, as in imports
    ORIGIN_ADDRESS_SHIFT = 16
    ORIGIN_PORT = 0xFFFF            # 0: unix socket

ctypedef struct Security:
    # access rules: one security for the broker, or one per listener. Its address stays the same over a reload, which changes the content
    Acl* acl                            # NULL: everything is allowed if there are no roles either
    Roles* roles                        # dynamic security, checked before the acl; a reference. NULL: none
    uint8_t guards                      # 1: deliveries are checked: rules, a plugin's verdicts or transforms
    uint8_t authenticate                # 1: the control plane checks user names and passwords
    uint8_t authenticate_anonymous               # 1: it also checks clients without a user name
    uint8_t authorize                   # 1: a plugin decides about topics
    uint8_t extended                    # 1: authentication methods are offered [v5 4.12]
    uint8_t events                      # 1: plugins receive events of clients
    uint8_t native                      # 1: there are native plugins: requests contain the facts about the client
    uint8_t each                        # 1: a native plugin decides about each message: requests contain it, and no verdict is remembered
    uint8_t filters                     # 1: a native plugin may change filters: no verdict about a filter is remembered
    void* native_realm                  # native plugins that are called on the loop; NULL: none
    void* native_ask                    # how they are called: native_ask_fn
    void* native_access                 # and about access to a message: native_access_fn
    Acl* transform_in                   # topics (as access to read) of messages that a plugin changes; NULL: none
    Acl* transform_out
    uint32_t place                      # position in the control plane's list
    Security* gone_next                 # no listener uses it any more; sessions may

ctypedef struct Listener:
    # a listener with its settings. Its address stays the same over a reload, which changes the content
    Security* security
    Listener* gone_next                     # next removed listener; connections of this one still exist
    uint8_t is_gone
    uint32_t origin                     # ORIGIN_ flags and numbers
    uint32_t kind                       # a number for its decisions about clients, equal at listeners of other nodes that decide alike; 0: unknown
    uint16_t port                       # 0: unix socket, or none
    uint8_t durability                  # durability of its clients' messages; 0: the general one
    uint8_t allow_anonymous
    uint8_t allow_zero_length_clientid
    uint8_t max_qos
    uint8_t versions                    # bit 1 << level
    uint8_t use_username_as_clientid
    uint16_t alias_max_in               # Topic Alias Maximum announced to clients
    uint16_t alias_max_out              # largest number of aliases to a client
    int64_t max_connections             # -1: no limit
    uint32_t n_connections
    void* bridge                          # Bridge* of bridge_state.pxd, for the bridge's connections; NULL: a real listener
    uint8_t renames                     # 1: topics or flags of deliveries change: a mount point, lines of a bridge
    View auto_id_prefix
    View mount_point
    uint8_t websockets
    uint8_t proxy_version               # version of the PROXY header of every connection; 0: none
    uint8_t proxy_require_tls
    uint8_t require_certificate
    uint8_t use_identity_as_username
    uint8_t use_subject_as_username
    TransportContext* tls_context            # a reference; NULL: without TLS
    uint8_t moves_tls                   # 1: the process that takes over seals the records of its connections, as this one does
    UpgradeRules upgrade                # the origins belong to this Listener
    Network* trusted_proxies            # peers whose X-Forwarded-For is believed; they belong to this Listener
    uint32_t n_trusted_proxies
    uint8_t trusts_unix                 # 1: peers on unix sockets are such proxies
    View name                           # path of its unix socket, or the host that it is bound to
    uint64_t drops[DROP_REASONS]        # drops of clients that are connected through it
