# Topics below $SYS/broker/ and the statistics that they show. dev/statistics writes this file from dev/statistics.toml.
cdef extern from *:
    """
    typedef struct {
        const char *topic;          /* below $SYS/broker/ */
        int stat;                   /* STAT_... */
        unsigned char hundredths;   /* 1: the value counts hundredths */
        unsigned char when;         /* SYS_... */
    } SysTopic;
    typedef struct {
        const char *name;           /* below $SYS/broker/load/ */
        int stat;                   /* STAT_... */
    } SysLoad;
    enum { SYS_ALWAYS, SYS_WITH_STORE, SYS_ABOVE_ZERO };
    static const SysTopic SYS_TOPICS[] = {
        {"clients/connected", 0, 0, SYS_ALWAYS},
        {"clients/active", 0, 0, SYS_ALWAYS},
        {"clients/total", 1, 0, SYS_ALWAYS},
        {"clients/disconnected", 2, 0, SYS_ALWAYS},
        {"clients/inactive", 2, 0, SYS_ALWAYS},
        {"clients/maximum", 3, 0, SYS_ALWAYS},
        {"clients/expired", 4, 0, SYS_ALWAYS},
        {"connections/socket/count", 6, 0, SYS_ALWAYS},
        {"messages/received", 7, 0, SYS_ALWAYS},
        {"messages/sent", 8, 0, SYS_ALWAYS},
        {"publish/messages/received", 9, 0, SYS_ALWAYS},
        {"publish/messages/sent", 10, 0, SYS_ALWAYS},
        {"publish/bytes/received", 11, 0, SYS_ALWAYS},
        {"publish/bytes/sent", 12, 0, SYS_ALWAYS},
        {"publish/messages/dropped", 13, 0, SYS_ALWAYS},
        {"bytes/received", 14, 0, SYS_ALWAYS},
        {"bytes/sent", 15, 0, SYS_ALWAYS},
        {"packet/out/bytes", 16, 0, SYS_ALWAYS},
        {"packet/out/count", 17, 0, SYS_ALWAYS},
        {"messages/stored", 18, 0, SYS_ALWAYS},
        {"store/messages/count", 18, 0, SYS_ALWAYS},
        {"store/messages/bytes", 19, 0, SYS_ALWAYS},
        {"heap/current", 20, 0, SYS_ALWAYS},
        {"subscriptions/count", 21, 0, SYS_ALWAYS},
        {"index/subscriptions", 21, 0, SYS_ALWAYS},
        {"shared_subscriptions/count", 22, 0, SYS_ALWAYS},
        {"index/shared", 22, 0, SYS_ALWAYS},
        {"index/filters", 23, 0, SYS_ALWAYS},
        {"index/exact", 24, 0, SYS_ALWAYS},
        {"index/nodes", 25, 0, SYS_ALWAYS},
        {"index/depth", 26, 0, SYS_ALWAYS},
        {"index/buckets", 27, 0, SYS_ALWAYS},
        {"index/load", 28, 1, SYS_ALWAYS},
        {"index/bytes", 29, 0, SYS_ALWAYS},
        {"index/cache/hits", 30, 0, SYS_ALWAYS},
        {"index/cache/misses", 31, 0, SYS_ALWAYS},
        {"retained messages/count", 32, 0, SYS_ALWAYS},
        {"index/pool/in_use", 36, 0, SYS_ALWAYS},
        {"index/pool/idle", 37, 0, SYS_ALWAYS},
        {"store/live/bytes", 46, 0, SYS_WITH_STORE},
        {"store/disk/bytes", 47, 0, SYS_WITH_STORE},
        {"store/disk/segments", 48, 0, SYS_WITH_STORE},
        {"store/waiting/bytes", 49, 0, SYS_WITH_STORE},
        {"store/commits/count", 50, 0, SYS_WITH_STORE},
        {"store/commits/second", 51, 1, SYS_WITH_STORE},
        {"store/commits/time", 52, 0, SYS_WITH_STORE},
        {"store/messages/written", 53, 0, SYS_WITH_STORE},
        {"store/messages/elided", 54, 0, SYS_WITH_STORE},
        {"store/messages/elided_percent", 55, 1, SYS_WITH_STORE},
        {"store/errors", 58, 0, SYS_WITH_STORE},
        {"dropped/queue_messages", 59, 0, SYS_ABOVE_ZERO},
        {"dropped/queue_bytes", 60, 0, SYS_ABOVE_ZERO},
        {"dropped/qos0_blocked", 61, 0, SYS_ABOVE_ZERO},
        {"dropped/output_bytes", 62, 0, SYS_ABOVE_ZERO},
        {"dropped/packet_size", 63, 0, SYS_ABOVE_ZERO},
        {"dropped/expired", 64, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_read", 65, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_write", 66, 0, SYS_ABOVE_ZERO},
        {"dropped/memory", 67, 0, SYS_ABOVE_ZERO},
        {"dropped/payload_size", 68, 0, SYS_ABOVE_ZERO},
        {"dropped/quota", 69, 0, SYS_ABOVE_ZERO},
        {"dropped/session_ended", 70, 0, SYS_ABOVE_ZERO},
        {"dropped/retained", 71, 0, SYS_ABOVE_ZERO},
        {"dropped/transform", 72, 0, SYS_ABOVE_ZERO},
        {"dropped/disk", 73, 0, SYS_ABOVE_ZERO},
        {"dropped/replaced", 74, 0, SYS_ABOVE_ZERO},
        {"dropped/loop", 75, 0, SYS_ABOVE_ZERO},
        {"dropped/unreadable", 76, 0, SYS_ABOVE_ZERO},
        {"dropped/no_name", 77, 0, SYS_ABOVE_ZERO},
    };
    static const SysLoad SYS_LOADS[] = {
        {"connections", 5},
        {"sockets", 6},
        {"messages/received", 7},
        {"messages/sent", 8},
        {"publish/received", 9},
        {"publish/sent", 10},
        {"publish/dropped", 13},
        {"bytes/received", 14},
        {"bytes/sent", 15},
    };
    static const char *const SYS_GAUGES[] = {"records", "lost", "waiting/bytes", "disk/bytes", "retired/records", "retired/unread", "errors"};
    """
    ctypedef struct SysTopic:
        const char* topic
        int stat
        unsigned char hundredths
        unsigned char when
    ctypedef struct SysLoad:
        const char* name
        int stat
    enum:
        SYS_ALWAYS                  # published whenever it changed
        SYS_WITH_STORE              # published only by a broker with a store
        SYS_ABOVE_ZERO              # published from the first drop on
    const SysTopic* SYS_TOPICS      # SYS_TOPICS_N of them
    const SysLoad* SYS_LOADS        # SYS_LOADS_N of them
    const char** SYS_GAUGES         # STREAM_GAUGES of them: names below $SYS/broker/streams/NAME/
