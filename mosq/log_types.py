"""The types of log lines, one bit each, as `log_type` names them. `cext/broker/core/log.pxd` has the same bits for the
data plane; tests/log/test_types.py compares both."""

ERROR, WARNING, NOTICE, INFORMATION = 1, 2, 4, 8
DEBUG, SUBSCRIBE, UNSUBSCRIBE, INTERNAL, WEBSOCKETS = 16, 32, 64, 128, 256
LOG_TYPES = {
    "error": ERROR, "warning": WARNING, "notice": NOTICE, "information": INFORMATION, "debug": DEBUG,
    "subscribe": SUBSCRIBE, "unsubscribe": UNSUBSCRIBE, "internal": INTERNAL, "websockets": WEBSOCKETS,
}
LOG_ALL = sum(LOG_TYPES.values())
