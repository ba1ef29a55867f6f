"""Define the kinds of records, with the numbers of cext/session/record.pxd."""

SESSION, SUB, UNSUB, END, MSG, ACKS, RELEASED, INBOX, INBOX_DONE = range(1, 10)
RETAINED_GONE, WILL, WILL_GONE, META, RETAINED_FROM, STREAMS, CLIENT_WILL, CLIENT_WILL_GONE = range(10, 18)
NAMES = {
    SESSION: "session",
    SUB: "sub",
    UNSUB: "unsub",
    END: "end",
    MSG: "msg",
    ACKS: "acks",
    RELEASED: "released",
    INBOX: "inbox",
    INBOX_DONE: "inbox_done",
    RETAINED_GONE: "retained_gone",
    WILL: "will",
    WILL_GONE: "will_gone",
    META: "meta",
    RETAINED_FROM: "retained_from",
    STREAMS: "streams",
    CLIENT_WILL: "client_will",
    CLIENT_WILL_GONE: "client_will_gone",
}
BY_NAME = {name: kind for kind, name in NAMES.items()}
