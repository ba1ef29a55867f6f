# A publication: a message on its way from its publisher to the sessions that receive it.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.session.message cimport Message
from cext.session.session cimport Session

ctypedef struct Shape:
    uint8_t* p
    uint32_t n
    uint32_t pid_at

cdef enum:
    # which workers it is for; 0: all
    SCOPE_LOCAL = 1                     # subscribers of this one only: it came from another worker, or is about this one
    SCOPE_REMOTE = 2                    # other ones only: the subscribers of this one have it
    SCOPE_WILL = 8                      # beside the others: it is a will; the links send it after the batch with its record (arrivals/wills.pyx)
    SCOPE_COPY = 4                      # no subscriber: it is a copy of a retained message of another worker

ctypedef struct Publication:
    # a message on its way through route and deliver
    View topic
    View props                          # properties that are forwarded
    View payload
    uint64_t expires_ms                 # 0: never
    Session* source                     # NULL: the broker itself, or a publisher that is gone
    Message* message                    # stored on demand; once set, the publication holds a reference
    uint8_t* steal                      # input buffer with the payload, if it may be taken over
    uint32_t steal_cap
    uint8_t qos
    uint8_t retain
    uint8_t shaped                      # 1: small enough for shapes
    uint8_t dup                         # DUP of its PUBLISH; QoS 1
    uint8_t durability                  # 0: the general durability
    uint8_t journalled                  # 1: it is in its streams
    uint8_t scope                       # SCOPE_...
    uint8_t owner                       # worker that keeps the retained message of the topic, plus 1, if it is another one; 0: this one, or none
    uint8_t elsewhere                   # 1: a member of a shared group at another worker gets it
    uint8_t patient                     # 1: where memory is missing for it, its sender tries again: it is not dropped
    uint8_t lacks                       # 1: memory was missing for a durable session, and nothing was done for it; only if patient
    uint16_t share                      # through a shared group: its place in the session's table, plus 1; see share.pyx
    View frame                          # frame as received, if it may be forwarded unchanged
    uint32_t frame_pid_at
    uint8_t frame_version
    uint32_t shapes_used                # bytes of broker.shape_bytes
    uint32_t shapes_made                # bit i: shapes[i] is encoded
    Shape shapes[12]                    # by (v5, qos, retain); last field, because it is not cleared
