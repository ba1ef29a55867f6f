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
        {"connections/room", 7, 0, SYS_ALWAYS},
        {"connections/newcomers", 10, 0, SYS_ALWAYS},
        {"connections/newcomers/bytes", 11, 0, SYS_ALWAYS},
        {"heap/resident", 12, 0, SYS_ALWAYS},
        {"messages/received", 13, 0, SYS_ALWAYS},
        {"messages/sent", 14, 0, SYS_ALWAYS},
        {"publish/messages/received", 15, 0, SYS_ALWAYS},
        {"publish/messages/sent", 16, 0, SYS_ALWAYS},
        {"publish/bytes/received", 17, 0, SYS_ALWAYS},
        {"publish/bytes/sent", 18, 0, SYS_ALWAYS},
        {"publish/messages/dropped", 19, 0, SYS_ALWAYS},
        {"bytes/received", 20, 0, SYS_ALWAYS},
        {"bytes/sent", 21, 0, SYS_ALWAYS},
        {"packet/out/bytes", 22, 0, SYS_ALWAYS},
        {"packet/out/count", 23, 0, SYS_ALWAYS},
        {"messages/stored", 24, 0, SYS_ALWAYS},
        {"store/messages/count", 24, 0, SYS_ALWAYS},
        {"store/messages/bytes", 25, 0, SYS_ALWAYS},
        {"heap/current", 26, 0, SYS_ALWAYS},
        {"heap/maximum", 27, 0, SYS_ALWAYS},
        {"subscriptions/count", 28, 0, SYS_ALWAYS},
        {"index/subscriptions", 28, 0, SYS_ALWAYS},
        {"shared_subscriptions/count", 29, 0, SYS_ALWAYS},
        {"index/shared", 29, 0, SYS_ALWAYS},
        {"index/filters", 30, 0, SYS_ALWAYS},
        {"index/exact", 31, 0, SYS_ALWAYS},
        {"index/nodes", 32, 0, SYS_ALWAYS},
        {"index/depth", 33, 0, SYS_ALWAYS},
        {"index/buckets", 34, 0, SYS_ALWAYS},
        {"index/load", 35, 1, SYS_ALWAYS},
        {"index/bytes", 36, 0, SYS_ALWAYS},
        {"index/cache/hits", 37, 0, SYS_ALWAYS},
        {"index/cache/misses", 38, 0, SYS_ALWAYS},
        {"retained messages/count", 39, 0, SYS_ALWAYS},
        {"index/pool/in_use", 44, 0, SYS_ALWAYS},
        {"index/pool/idle", 45, 0, SYS_ALWAYS},
        {"turn/work/maximum", 48, 0, SYS_ALWAYS},
        {"turn/time/maximum", 49, 0, SYS_ALWAYS},
        {"upgrades/count", 55, 0, SYS_ALWAYS},
        {"upgrades/connections/moved", 56, 0, SYS_ALWAYS},
        {"upgrades/connections/closed", 57, 0, SYS_ALWAYS},
        {"upgrades/pause", 58, 0, SYS_ALWAYS},
        {"store/live/bytes", 60, 0, SYS_WITH_STORE},
        {"store/disk/bytes", 61, 0, SYS_WITH_STORE},
        {"store/disk/segments", 62, 0, SYS_WITH_STORE},
        {"store/waiting/bytes", 63, 0, SYS_WITH_STORE},
        {"store/commits/count", 64, 0, SYS_WITH_STORE},
        {"store/commits/second", 65, 1, SYS_WITH_STORE},
        {"store/commits/time", 66, 0, SYS_WITH_STORE},
        {"store/messages/written", 67, 0, SYS_WITH_STORE},
        {"store/messages/elided", 68, 0, SYS_WITH_STORE},
        {"store/messages/elided_percent", 69, 1, SYS_WITH_STORE},
        {"store/errors", 72, 0, SYS_WITH_STORE},
        {"dropped/queue_messages", 73, 0, SYS_ABOVE_ZERO},
        {"dropped/queue_bytes", 74, 0, SYS_ABOVE_ZERO},
        {"dropped/qos0_blocked", 75, 0, SYS_ABOVE_ZERO},
        {"dropped/output_bytes", 76, 0, SYS_ABOVE_ZERO},
        {"dropped/packet_size", 77, 0, SYS_ABOVE_ZERO},
        {"dropped/expired", 78, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_read", 79, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_write", 80, 0, SYS_ABOVE_ZERO},
        {"dropped/memory", 81, 0, SYS_ABOVE_ZERO},
        {"dropped/payload_size", 82, 0, SYS_ABOVE_ZERO},
        {"dropped/quota", 83, 0, SYS_ABOVE_ZERO},
        {"dropped/session_ended", 84, 0, SYS_ABOVE_ZERO},
        {"dropped/retained", 85, 0, SYS_ABOVE_ZERO},
        {"dropped/transform", 86, 0, SYS_ABOVE_ZERO},
        {"dropped/disk", 87, 0, SYS_ABOVE_ZERO},
        {"dropped/replaced", 88, 0, SYS_ABOVE_ZERO},
        {"dropped/loop", 89, 0, SYS_ABOVE_ZERO},
        {"dropped/unreadable", 90, 0, SYS_ABOVE_ZERO},
        {"dropped/no_name", 91, 0, SYS_ABOVE_ZERO},
    };
    static const SysLoad SYS_LOADS[] = {
        {"connections", 5},
        {"sockets", 6},
        {"messages/received", 13},
        {"messages/sent", 14},
        {"publish/received", 15},
        {"publish/sent", 16},
        {"publish/dropped", 19},
        {"bytes/received", 20},
        {"bytes/sent", 21},
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
