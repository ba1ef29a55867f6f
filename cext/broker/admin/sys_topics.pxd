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
        {"connections/newcomers", 8, 0, SYS_ALWAYS},
        {"connections/newcomers/bytes", 9, 0, SYS_ALWAYS},
        {"heap/resident", 10, 0, SYS_ALWAYS},
        {"messages/received", 11, 0, SYS_ALWAYS},
        {"messages/sent", 12, 0, SYS_ALWAYS},
        {"publish/messages/received", 13, 0, SYS_ALWAYS},
        {"publish/messages/sent", 14, 0, SYS_ALWAYS},
        {"publish/bytes/received", 15, 0, SYS_ALWAYS},
        {"publish/bytes/sent", 16, 0, SYS_ALWAYS},
        {"publish/messages/dropped", 17, 0, SYS_ALWAYS},
        {"bytes/received", 18, 0, SYS_ALWAYS},
        {"bytes/sent", 19, 0, SYS_ALWAYS},
        {"packet/out/bytes", 20, 0, SYS_ALWAYS},
        {"packet/out/count", 21, 0, SYS_ALWAYS},
        {"messages/stored", 22, 0, SYS_ALWAYS},
        {"store/messages/count", 22, 0, SYS_ALWAYS},
        {"store/messages/bytes", 23, 0, SYS_ALWAYS},
        {"heap/current", 24, 0, SYS_ALWAYS},
        {"heap/maximum", 25, 0, SYS_ALWAYS},
        {"subscriptions/count", 26, 0, SYS_ALWAYS},
        {"index/subscriptions", 26, 0, SYS_ALWAYS},
        {"shared_subscriptions/count", 27, 0, SYS_ALWAYS},
        {"index/shared", 27, 0, SYS_ALWAYS},
        {"index/filters", 28, 0, SYS_ALWAYS},
        {"index/exact", 29, 0, SYS_ALWAYS},
        {"index/nodes", 30, 0, SYS_ALWAYS},
        {"index/depth", 31, 0, SYS_ALWAYS},
        {"index/buckets", 32, 0, SYS_ALWAYS},
        {"index/load", 33, 1, SYS_ALWAYS},
        {"index/bytes", 34, 0, SYS_ALWAYS},
        {"index/cache/hits", 35, 0, SYS_ALWAYS},
        {"index/cache/misses", 36, 0, SYS_ALWAYS},
        {"retained messages/count", 37, 0, SYS_ALWAYS},
        {"index/pool/in_use", 41, 0, SYS_ALWAYS},
        {"index/pool/idle", 42, 0, SYS_ALWAYS},
        {"turn/work/maximum", 45, 0, SYS_ALWAYS},
        {"turn/time/maximum", 46, 0, SYS_ALWAYS},
        {"store/live/bytes", 53, 0, SYS_WITH_STORE},
        {"store/disk/bytes", 54, 0, SYS_WITH_STORE},
        {"store/disk/segments", 55, 0, SYS_WITH_STORE},
        {"store/waiting/bytes", 56, 0, SYS_WITH_STORE},
        {"store/commits/count", 57, 0, SYS_WITH_STORE},
        {"store/commits/second", 58, 1, SYS_WITH_STORE},
        {"store/commits/time", 59, 0, SYS_WITH_STORE},
        {"store/messages/written", 60, 0, SYS_WITH_STORE},
        {"store/messages/elided", 61, 0, SYS_WITH_STORE},
        {"store/messages/elided_percent", 62, 1, SYS_WITH_STORE},
        {"store/errors", 65, 0, SYS_WITH_STORE},
        {"dropped/queue_messages", 66, 0, SYS_ABOVE_ZERO},
        {"dropped/queue_bytes", 67, 0, SYS_ABOVE_ZERO},
        {"dropped/qos0_blocked", 68, 0, SYS_ABOVE_ZERO},
        {"dropped/output_bytes", 69, 0, SYS_ABOVE_ZERO},
        {"dropped/packet_size", 70, 0, SYS_ABOVE_ZERO},
        {"dropped/expired", 71, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_read", 72, 0, SYS_ABOVE_ZERO},
        {"dropped/acl_write", 73, 0, SYS_ABOVE_ZERO},
        {"dropped/memory", 74, 0, SYS_ABOVE_ZERO},
        {"dropped/payload_size", 75, 0, SYS_ABOVE_ZERO},
        {"dropped/quota", 76, 0, SYS_ABOVE_ZERO},
        {"dropped/session_ended", 77, 0, SYS_ABOVE_ZERO},
        {"dropped/retained", 78, 0, SYS_ABOVE_ZERO},
        {"dropped/transform", 79, 0, SYS_ABOVE_ZERO},
        {"dropped/disk", 80, 0, SYS_ABOVE_ZERO},
        {"dropped/replaced", 81, 0, SYS_ABOVE_ZERO},
        {"dropped/loop", 82, 0, SYS_ABOVE_ZERO},
        {"dropped/unreadable", 83, 0, SYS_ABOVE_ZERO},
        {"dropped/no_name", 84, 0, SYS_ABOVE_ZERO},
    };
    static const SysLoad SYS_LOADS[] = {
        {"connections", 5},
        {"sockets", 6},
        {"messages/received", 11},
        {"messages/sent", 12},
        {"publish/received", 13},
        {"publish/sent", 14},
        {"publish/dropped", 17},
        {"bytes/received", 18},
        {"bytes/sent", 19},
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
