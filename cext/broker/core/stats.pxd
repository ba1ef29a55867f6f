# Counters of one broker, and the reasons by which drops and refusals are counted.
from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    # why a delivery or a message was dropped: index into Stats.drops; names in stats.pyx
    DROP_QUEUE_MESSAGES = 0     # max_queued_messages
    DROP_QUEUE_BYTES = 1        # max_queued_bytes
    DROP_QOS0_BLOCKED = 2       # QoS 0 while the socket is full
    DROP_OUTPUT_BYTES = 3       # max_output_bytes
    DROP_PACKET_SIZE = 4        # over the peer's maximum packet size
    DROP_EXPIRED = 5
    DROP_ACL_READ = 6
    DROP_ACL_WRITE = 7
    DROP_MEMORY = 8             # memory_limit, or none left
    DROP_PAYLOAD_SIZE = 9       # message_size_limit
    DROP_QUOTA = 10             # receive maximum exceeded by a publisher
    DROP_SESSION_ENDED = 11     # owed to a session that ended
    DROP_RETAINED = 12          # a retained message refused or expired
    DROP_TRANSFORM = 13         # taken by a plugin that changes messages
    DROP_DISK = 14              # the store's disk is full
    DROP_REPLACED = 15          # queue_overflow last_value: a newer one for its topic came
    DROP_LOOP = 16              # it came back to a broker that it had been through
    DROP_UNREADABLE = 17        # its record in the store is damaged
    DROP_NO_NAME = 18           # a bridge: none of its lines sends that topic out any more, or under an impossible name
    DROP_REASONS = 19

cdef enum:
    REFUSED_LISTENER = 0        # max_connections
    REFUSED_GLOBAL = 1          # global_max_connections
    REFUSED_CLIENTS = 2         # global_max_clients
    REFUSED_DESCRIPTORS = 3
    REFUSED_MEMORY = 4
    REFUSED_ACCESS = 5          # user name, password, anonymous: CONNECT was not authorised
    REFUSED_AUTH_TIMEOUT = 6    # the control plane did not answer in time
    REFUSED_DISK = 7            # a session that is to last, while the store's disk is full
    REFUSED_REASONS = 8

ctypedef struct Stats:
    uint64_t messages_in                # packets of any kind
    uint64_t messages_out
    uint64_t publish_in
    uint64_t publish_out
    uint64_t publish_bytes_in           # payload
    uint64_t publish_bytes_out
    uint64_t publish_dropped
    uint64_t sockets                    # accepted
    uint64_t connections                # CONNECTs accepted
    uint64_t clients_expired
    uint64_t clients_max
    uint64_t clients_connected
    uint64_t protocol_disconnects                       # connections ended for a protocol error
    uint64_t drops[DROP_REASONS]
    uint64_t refused[REFUSED_REASONS]
    uint64_t asked                      # questions to the control plane
    uint64_t auth_request_timeouts               # of them, not answered in time
    uint64_t answers_stale              # late, twice, or for a client that is gone
    uint64_t events_lost                # found the ring full

ctypedef struct Average:
    # a load average over 1, 5 and 15 minutes, per minute
    uint64_t last
    double value[3]
    double sent[3]
    uint8_t was_sent
