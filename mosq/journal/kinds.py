"""The kinds of records; see docs/journal.md."""

MESSAGE, CONNECT, DISCONNECT, SUBSCRIBE, UNSUBSCRIBE, DROP, EXPIRY, TAKE_OVER, ACCOUNT, GAP, START = range(1, 12)
NAMES = {
    MESSAGE: "message",
    CONNECT: "connect",
    DISCONNECT: "disconnect",
    SUBSCRIBE: "subscribe",
    UNSUBSCRIBE: "unsubscribe",
    DROP: "drop",
    EXPIRY: "expiry",
    TAKE_OVER: "take_over",
    ACCOUNT: "account",
    GAP: "gap",
    START: "start",
}
REFUSED = 0x80  # reasons of a connect record from here on mean a refused connection
