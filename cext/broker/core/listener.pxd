# A listener with its settings, and the rules that count for its clients.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.acl cimport Acl
from cext.broker.rules.roles cimport Roles
from cext.net.conn_state cimport TransportContext
from cext.net.upgrade cimport UpgradeRules

ctypedef struct Security:
    # who may do what: one for the broker, or one per listener. Stays where it is over a reload, which changes what is in it
    Acl* acl                            # NULL: everything is allowed, where there are no roles either
    Roles* roles                        # dynamic security: asked before the acl; a reference. NULL: none
    uint8_t guards                      # deliveries are checked: rules, a plugin's verdicts or transforms
    uint8_t authenticate                # user names and passwords are checked by the control plane
    uint8_t authenticate_anonymous               # so are clients without a user name
    uint8_t authorize                   # a plugin decides about topics
    uint8_t extended                    # authentication methods are offered [v5 4.12]
    uint8_t events                      # who comes, goes, subscribes is told
    Acl* transform_in                   # topics (as if to be read) of messages that a plugin changes; NULL: none
    Acl* transform_out
    uint32_t place                      # in the control plane's list
    Security* gone_next                 # no listener uses it any more; sessions may

ctypedef struct Listener:
    # a listener with its settings. Stays where it is over a reload, which changes what is in it
    Security* security
    Listener* gone_next                     # its listener was removed; some connections are not freed yet
    uint8_t is_gone
    uint16_t port                       # 0: unix socket, or none
    uint8_t durability                  # of what its clients publish; 0: as for all
    uint8_t allow_anonymous
    uint8_t allow_zero_length_clientid
    uint8_t max_qos
    uint8_t versions                    # bit 1 << level
    uint8_t use_username_as_clientid
    uint16_t alias_max_in               # announced to clients
    uint16_t alias_max_out              # at most so many are used towards a client
    int64_t max_connections             # -1: no limit
    uint32_t n_connections
    void* bridge                          # Link* of link.pxd: these are its connections; NULL: a listener's
    uint8_t renames                     # topics or flags of what goes out change: a mount point, a link's lines
    View auto_id_prefix
    View mount_point
    uint8_t websockets
    uint8_t proxy_version               # of the header that every connection begins with; 0: none
    uint8_t proxy_require_tls
    uint8_t require_certificate
    uint8_t use_identity_as_username
    uint8_t use_subject_as_username
    TransportContext* tls_context            # NULL: no TLS. A reference
    UpgradeRules upgrade                # its origins are this Door's
