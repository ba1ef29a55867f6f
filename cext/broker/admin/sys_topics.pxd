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
    enum { SYS_ALWAYS, SYS_WITH_STORE, SYS_WITH_WORKERS, SYS_ABOVE_ZERO };
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
        {"links/bytes/received", 22, 0, SYS_WITH_WORKERS},
        {"links/bytes/sent", 23, 0, SYS_WITH_WORKERS},
        {"packet/out/bytes", 24, 0, SYS_ALWAYS},
        {"packet/out/count", 25, 0, SYS_ALWAYS},
        {"messages/stored", 26, 0, SYS_ALWAYS},
        {"store/messages/count", 26, 0, SYS_ALWAYS},
        {"store/messages/bytes", 27, 0, SYS_ALWAYS},
        {"heap/current", 28, 0, SYS_ALWAYS},
        {"heap/maximum", 29, 0, SYS_ALWAYS},
        {"subscriptions/count", 30, 0, SYS_ALWAYS},
        {"index/subscriptions", 30, 0, SYS_ALWAYS},
        {"shared_subscriptions/count", 31, 0, SYS_ALWAYS},
        {"index/shared", 31, 0, SYS_ALWAYS},
        {"index/filters", 32, 0, SYS_ALWAYS},
        {"index/exact", 33, 0, SYS_ALWAYS},
        {"index/nodes", 34, 0, SYS_ALWAYS},
        {"index/depth", 35, 0, SYS_ALWAYS},
        {"index/buckets", 36, 0, SYS_ALWAYS},
        {"index/load", 37, 1, SYS_ALWAYS},
        {"index/bytes", 38, 0, SYS_ALWAYS},
        {"index/cache/hits", 39, 0, SYS_ALWAYS},
        {"index/cache/misses", 40, 0, SYS_ALWAYS},
        {"retained messages/count", 41, 0, SYS_ALWAYS},
        {"index/pool/in_use", 46, 0, SYS_ALWAYS},
        {"index/pool/idle", 47, 0, SYS_ALWAYS},
        {"turn/count", 50, 0, SYS_ALWAYS},
        {"turn/work/maximum", 51, 0, SYS_ALWAYS},
        {"turn/time/maximum", 52, 0, SYS_ALWAYS},
        {"upgrades/count", 58, 0, SYS_ALWAYS},
        {"upgrades/connections/moved", 59, 0, SYS_ALWAYS},
        {"upgrades/connections/closed", 60, 0, SYS_ALWAYS},
        {"upgrades/pause", 61, 0, SYS_ALWAYS},
        {"store/live/bytes", 63, 0, SYS_WITH_STORE},
        {"store/disk/bytes", 64, 0, SYS_WITH_STORE},
        {"store/disk/segments", 65, 0, SYS_WITH_STORE},
        {"store/waiting/bytes", 66, 0, SYS_WITH_STORE},
        {"store/commits/count", 67, 0, SYS_WITH_STORE},
        {"store/commits/second", 68, 1, SYS_WITH_STORE},
        {"store/commits/time", 69, 0, SYS_WITH_STORE},
        {"store/messages/written", 70, 0, SYS_WITH_STORE},
        {"store/messages/elided", 71, 0, SYS_WITH_STORE},
        {"store/messages/elided_percent", 72, 1, SYS_WITH_STORE},
        {"store/errors", 75, 0, SYS_WITH_STORE},
        {"dropped/queue_messages", 76, 0, SYS_ABOVE_ZERO},
        {"dropped/queue_bytes", 77, 0, SYS_ABOVE_ZERO},
        {"dropped/qos0_blocked", 78, 0, SYS_ABOVE_ZERO},
        {"dropped/output_bytes", 79, 0, SYS_ABOVE_ZERO},
        {"dropped/packet_size", 80, 0, SYS_ABOVE_ZERO},
        {"dropped/expired", 81, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_read", 82, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_write", 83, 0, SYS_ABOVE_ZERO},
        {"dropped/memory", 84, 0, SYS_ABOVE_ZERO},
        {"dropped/payload_size", 85, 0, SYS_ABOVE_ZERO},
        {"dropped/quota", 86, 0, SYS_ABOVE_ZERO},
        {"dropped/session_ended", 87, 0, SYS_ABOVE_ZERO},
        {"dropped/retained", 88, 0, SYS_ABOVE_ZERO},
        {"dropped/transform", 89, 0, SYS_ABOVE_ZERO},
        {"dropped/disk", 90, 0, SYS_ABOVE_ZERO},
        {"dropped/replaced", 91, 0, SYS_ABOVE_ZERO},
        {"dropped/loop", 92, 0, SYS_ABOVE_ZERO},
        {"dropped/unreadable", 93, 0, SYS_ABOVE_ZERO},
        {"dropped/no_name", 94, 0, SYS_ABOVE_ZERO},
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
        SYS_WITH_WORKERS            # published only by a broker with several workers
        SYS_ABOVE_ZERO              # published from the first drop on
    const SysTopic* SYS_TOPICS      # SYS_TOPICS_N of them
    const SysLoad* SYS_LOADS        # SYS_LOADS_N of them
    const char** SYS_GAUGES         # STREAM_GAUGES of them: names below $SYS/broker/streams/NAME/
