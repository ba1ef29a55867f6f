# Rules that a build for tests can switch off, so that the simulator is tested too: without a rule it must find a failure
# (tests/link/test_rules.py). In a build without MOSQ_RULES_OFF the test is the constant 0, and the compiler removes it.

cdef extern from *:
    """
    #ifdef MOSQ_RULES_OFF
    #define mosq_rule_off(mask, rule) (((mask) >> (rule)) & 1)
    #else
    #define mosq_rule_off(mask, rule) 0
    #endif
    """
    bint mosq_rule_off(unsigned long long mask, int rule) noexcept nogil

cdef enum:
    RULE_ACK_AFTER_COMMIT = 0       # B acknowledges what is committed, not what it has received
    RULE_RESEND = 1                 # A sends unacknowledged messages again, after a new connection
    RULE_RESEND_FIRST = 2           # ... before anything new
    RULE_DROP_NUMBER = 3            # B drops a number that it has
    RULE_DROP_IDENTITY = 4          # B routes an identity once
    RULE_IDENTITY_BATCH = 5         # a message that B drops for its identity waits for the batch of the first
    RULE_RELEASE_LATE = 6           # an identity is released after all logs have acknowledged it
    RULE_NUMBERS_OF_RUN = 7         # a new run of A begins with number 1: B forgets the mark of the older run
    RULE_ASK_ROUTES = 8             # SUBACK waits for CONFIRM
    RULE_ASK_SECOND = 9             # ... also for a filter that another subscriber has announced and that is not yet confirmed
    RULE_DOWN_IS_DEAD = 10          # a worker counts as confirmed if its process has ended, not if its connection broke
    RULE_ASK_BEHIND_ROUTES = 11     # ASK is behind the snapshot of a new connection
    RULE_KEEP_ROUTES = 12           # routes of a worker stay while it is away
    RULE_SWEEP_ROUTES = 13          # a snapshot ends the routes that it does not name
    RULE_READY = 14                 # a worker opens its listeners when it has a snapshot of each other worker
    RULE_READY_OF_DOWN = 15         # ... also of those that are down at that time
    RULE_CURRENT_BEHIND_RETAINED = 16   # CURRENT comes on the link of the owner, behind its RETAINED frames
    RULE_CURRENT_AFTER_ROUTES = 17  # retained messages are asked for after the route is confirmed
    RULE_RETAINED_AFTER_COMMIT = 18     # the owner acknowledges a retained message when it is committed
    RULE_RETAINED_SNAPSHOT = 19     # a new connection begins with the retained messages of the owner
    RULE_VOID = 20                  # NO_MEMBER holds the mark until VOID
    RULE_CHOOSE_AGAIN = 21          # A chooses another log after NO_MEMBER
    RULE_CHOICE_RECORDED = 22       # the log that a QoS 2 message for a group goes to is committed before it is sent
    RULE_OPEN_AFTER_ACK = 23        # the inbox record of a QoS 2 message ends after all logs have acknowledged it
    RULE_LOCAL_IDENTITY = 24        # local deliveries of QoS 2 are recorded with the identity
    RULE_MARK_IN_BATCH = 25         # the mark is in the batch of the deliveries
    RULE_WAIT_ALL = 26              # PUBACK waits for each log, and for its own commit
    RULE_STALE_RUN = 27             # B refuses a HELLO of an older run of the same log
    RULE_BOUNDED = 28               # a link is bounded
    RULE_WILL_RECORDED = 29         # the record of a will stays until all logs have acknowledged it
    RULE_ORDER_OF_OWNER = 30        # the owner gives the order of retained messages; no other worker applies its own at once
    RULE_NOT_BEFORE_READY = 31      # nothing is published before the worker is ready
    RULE_OPEN_SNAPSHOT = 32         # a snapshot names the identities that are open, and ends the others
    RULE_FLUSH = 33                 # CONFIRM waits until the owners have the retained messages that were sent before
    RULE_LATER = 34                 # the mark does not pass a message whose delivery is not done
    RULE_WALK_COMMITTED = 35        # a snapshot of retained messages ends when all that is in it is committed
    RULE_LEAVE_UNREAD = 36          # B takes a message for which it has no memory later, and leaves it unread until then
    RULES = 37
