# distutils: libraries = crypto
"""Handle TLS 1.3 records after the handshake [RFC 8446 5] in place of OpenSSL's SSL, in a fortieth of its memory. This module
knows keys, sealing, opening, alerts and KeyUpdate. It does not know sockets or handshakes: OpenSSL does all handshakes, and
provides every cipher and digest used here. docs/adr/0008 gives the reasons, and lists the cases that stay with OpenSSL.

The secrets come from the key log callback, the only way in which OpenSSL exposes them. A connection holds keys and counters. The
cipher contexts belong to the loop and get the key of the connection that uses them.

Invariants: no nonce is used twice under a key, because each record increments `sequence` and a new key begins at 0. A context is
never used with another connection's key, because `owner` names the connection, and both end together. No content of a record is
used before its tag was verified. A failure is final.
Cost: 310 bytes per connection; 0.2 us to set a context's key; a record costs what its cipher costs, and no memory.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strchr, strlen, strncmp

from cext.net.openssl cimport (
    EVP_CIPHER_CTX_ctrl, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CIPHER_CTX_reset, EVP_CIPHER_fetch, EVP_CIPHER_free,
    EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG, EVP_CipherFinal_ex, EVP_CipherInit_ex2, EVP_CipherUpdate, EVP_Digest,
    EVP_MD_fetch, EVP_MD_free, OPENSSL_cleanse,
)

cdef enum:
    TAG_BYTES = 16
    NONCE_BYTES = 12
    SECRET_BYTES_MAX = 48
    BLOCK_BYTES_MAX = 128       # block size of SHA-384
    INFO_BYTES_MAX = 80         # label of 18 and hash of 48 bytes
    BLOCK_BYTES = 16
    KEY_UPDATE = 24             # type of the handshake message [4.6.3]
    KEY_UPDATE_BYTES = 5
    LEVEL_WARNING = 1
    LEVEL_FATAL = 2

cdef extern from *:
    const uint64_t SEQUENCE_END "UINT64_MAX"


# ---------------------------------------------------------------- suites

cdef int suites_init(Suite* suites) noexcept nogil:
    cdef int i
    memset(suites, 0, SUITES * sizeof(Suite))
    # 2^24.5 full-size records of AES-GCM, of 2^10 blocks each, are safe under one key [5.5]; the limit of ChaCha20 is the
    # sequence number. Small records count only their own blocks: some clients do not support KeyUpdate, and need none for years.
    suite_fill(&suites[0], 0x1301, b"AES-128-GCM", b"SHA256", 16, 32, 1ULL << 34)
    suite_fill(&suites[1], 0x1302, b"AES-256-GCM", b"SHA384", 32, 48, 1ULL << 34)
    suite_fill(&suites[2], 0x1303, b"ChaCha20-Poly1305", b"SHA256", 32, 32, 1ULL << 60)
    for i in range(SUITES):
        if suites[i].ctx[OPENING] == NULL or suites[i].ctx[SEALING] == NULL:
            return -1
    return 0


cdef void suite_fill(Suite* s, uint16_t id, const char* cipher, const char* md, uint8_t key_n, uint8_t secret_n, uint64_t blocks_max) noexcept nogil:
    s.id = id
    s.cipher = EVP_CIPHER_fetch(NULL, cipher, NULL)
    s.md = EVP_MD_fetch(NULL, md, NULL)
    s.ctx[OPENING] = EVP_CIPHER_CTX_new()
    s.ctx[SEALING] = EVP_CIPHER_CTX_new()
    s.blocks_max = blocks_max
    s.key_n = key_n
    s.secret_n = secret_n


cdef void suites_fini(Suite* suites) noexcept nogil:
    cdef int i
    for i in range(SUITES):
        EVP_CIPHER_CTX_free(suites[i].ctx[OPENING])      # also wipes the key
        EVP_CIPHER_CTX_free(suites[i].ctx[SEALING])
        EVP_CIPHER_free(suites[i].cipher)
        EVP_MD_free(suites[i].md)
    memset(suites, 0, SUITES * sizeof(Suite))


cdef Suite* suite_find(Suite* suites, uint16_t id) noexcept nogil:
    cdef int i
    for i in range(SUITES):
        if suites[i].id == id and suites[i].cipher != NULL and suites[i].md != NULL:
            return &suites[i]
    return NULL


cdef bint suite_use_key(Suite* s, int direction, const Half* h, const uint8_t* nonce) noexcept nogil:
    """Give the context the key of h and the nonce."""
    cdef EVP_CIPHER_CTX* e = s.ctx[direction]
    if s.owner[direction] == h:
        return EVP_CipherInit_ex2(e, NULL, NULL, nonce, -1, NULL) == 1
    if EVP_CipherInit_ex2(e, s.cipher if s.owner[direction] == NULL else NULL, h.key, nonce, direction, NULL) != 1:
        suite_drop_key(s, direction)
        return 0
    s.owner[direction] = h
    return 1


cdef void suite_drop_key(Suite* s, int direction) noexcept nogil:
    EVP_CIPHER_CTX_reset(s.ctx[direction])       # wipes the key and all data derived from it
    s.owner[direction] = NULL


# ---------------------------------------------------------------- keys

cdef int nibble(char c) noexcept nogil:
    return c - c'0' if c'0' <= c <= c'9' else c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef void records_learn(Records* x, const char* line) noexcept nogil:
    cdef bint peers = strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0
    cdef Half* h = &x.peers if peers else &x.ours
    cdef const char* digits
    cdef size_t n, i
    cdef int high, low
    if not peers and strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) != 0:
        return
    digits = strchr(line + 24, c' ')     # after the client's random bytes
    if digits == NULL or x.suite != NULL:
        return
    digits += 1
    n = strlen(digits) // 2
    if n > SECRET_BYTES_MAX:
        return
    for i in range(n):
        high = nibble(digits[2 * i])
        low = nibble(digits[2 * i + 1])
        if high < 0 or low < 0:
            return
        h.secret[i] = <uint8_t>(high << 4 | low)
    if peers:
        x.peers_n = <uint8_t>n
    else:
        x.ours_n = <uint8_t>n


cdef int records_hmac(const Suite* s, const uint8_t* key, const uint8_t* p, size_t n, uint8_t* out) noexcept nogil:
    """Compute RFC 2104 for a key that is not longer than a block. OpenSSL 3.0's HMAC() would fetch its
    algorithms again in each call."""
    cdef uint8_t text[208]      # size is BLOCK_BYTES_MAX + INFO_BYTES_MAX
    cdef uint8_t inner[48]
    cdef size_t block = 64 if s.secret_n == 32 else 128, i
    cdef unsigned int size
    cdef int ok = 0
    if n > INFO_BYTES_MAX:
        return -1
    for i in range(block):
        text[i] = (key[i] if i < s.secret_n else 0) ^ 0x36
    memcpy(text + block, p, n)
    if EVP_Digest(text, block + n, inner, &size, s.md, NULL) == 1:
        for i in range(block):
            text[i] ^= 0x36 ^ 0x5c
        memcpy(text + block, inner, s.secret_n)
        ok = EVP_Digest(text, block + s.secret_n, out, &size, s.md, NULL)
    OPENSSL_cleanse(text, sizeof(text))
    OPENSSL_cleanse(inner, sizeof(inner))
    return 0 if ok == 1 else -1


cdef int hkdf_expand_label(const Suite* s, const uint8_t* secret, const char* label, size_t label_n, const uint8_t* transcript,
                           uint8_t size, uint8_t* out) noexcept nogil:
    """Compute HKDF-Expand-Label with a hash as context, or an empty context if it is NULL [7.1]. `out` has SECRET_BYTES_MAX
    bytes; every result here fits in one block of HKDF."""
    cdef uint8_t info[80]       # size is INFO_BYTES_MAX
    cdef uint8_t reason_n = s.secret_n if transcript != NULL else 0
    info[0] = 0
    info[1] = size
    info[2] = <uint8_t>(6 + label_n)
    memcpy(info + 3, <const char*>b"tls13 ", 6)
    memcpy(info + 9, label, label_n)
    info[9 + label_n] = reason_n
    if reason_n:
        memcpy(info + 10 + label_n, transcript, reason_n)
    info[10 + label_n + reason_n] = 1      # number of the HKDF block
    return records_hmac(s, secret, info, 11 + label_n + reason_n, out)


cdef int half_key(Suite* s, int direction, Half* h) noexcept nogil:
    """Derive key and IV from h.secret [7.3], and restart the sequence [5.3]. After -1 the direction is unusable."""
    cdef uint8_t key[48]        # size is SECRET_BYTES_MAX
    cdef uint8_t iv[48]
    cdef bint ok = hkdf_expand_label(s, h.secret, b"key", 3, NULL, s.key_n, key) == 0 and hkdf_expand_label(s, h.secret, b"iv", 2, NULL, NONCE_BYTES, iv) == 0
    if ok:
        memcpy(h.key, key, s.key_n)
        memcpy(h.iv, iv, NONCE_BYTES)
    OPENSSL_cleanse(key, sizeof(key))
    OPENSSL_cleanse(iv, sizeof(iv))
    if s.owner[direction] == h:
        suite_drop_key(s, direction)
    h.sequence = 0 if ok else SEQUENCE_END
    return 0 if ok else -1


cdef int half_renew(Suite* s, int direction, Half* h) noexcept nogil:
    """Derive the next generation [7.2]. The last secret is overwritten."""
    cdef uint8_t secret[48]     # size is SECRET_BYTES_MAX
    h.sequence = SEQUENCE_END
    if hkdf_expand_label(s, h.secret, b"traffic upd", 11, NULL, s.secret_n, secret) != 0:
        return -1
    memcpy(h.secret, secret, s.secret_n)
    OPENSSL_cleanse(secret, sizeof(secret))
    return half_key(s, direction, h)


cdef int records_begin(Records* x, Suite* suite, uint64_t sent) noexcept nogil:
    if x.peers_n != suite.secret_n or x.ours_n != suite.secret_n:
        return -1
    if half_key(suite, OPENING, &x.peers) != 0 or half_key(suite, SEALING, &x.ours) != 0:
        return -1
    x.ours.sequence = sent
    x.suite = suite
    return 0


cdef void records_end(Records* x) noexcept nogil:
    if x.suite != NULL and x.suite.owner[OPENING] == &x.peers:
        suite_drop_key(x.suite, OPENING)
    if x.suite != NULL and x.suite.owner[SEALING] == &x.ours:
        suite_drop_key(x.suite, SEALING)
    OPENSSL_cleanse(x, sizeof(Records))


cdef int next_nonce(Half* h, uint8_t* nonce) noexcept nogil:
    """Compute the next nonce [5.3]. Return -1 if the sequence number would wrap."""
    cdef int i
    if h.sequence == SEQUENCE_END:
        return -1
    memcpy(nonce, h.iv, NONCE_BYTES)
    for i in range(8):
        nonce[NONCE_BYTES - 1 - i] ^= <uint8_t>(h.sequence >> (8 * i))
    h.sequence += 1
    return 0


# ---------------------------------------------------------------- sealing

cdef int records_seal(Records* x, uint8_t content, const uint8_t* p, uint32_t n, uint8_t* out) noexcept nogil:
    """Seal a TLSCiphertext [5.2] without padding. The header is the additional authenticated data."""
    cdef Suite* s = x.suite
    cdef EVP_CIPHER_CTX* e = s.ctx[SEALING]
    cdef uint8_t* to = out + RECORD_HEADER_BYTES
    cdef uint8_t nonce[12]
    cdef uint32_t size = n + 1 + TAG_BYTES
    cdef int _, whole
    if n > RECORD_BYTES or next_nonce(&x.ours, nonce) != 0 or not suite_use_key(s, SEALING, &x.ours, nonce):
        return -1
    x.blocks += (n + 1 + BLOCK_BYTES - 1) // BLOCK_BYTES + 1
    out[0] = TYPE_DATA
    out[1] = out[2] = 3
    out[3] = <uint8_t>(size >> 8)
    out[4] = <uint8_t>size
    if p == to:                  # one piece that includes its type
        to[n] = content
        whole = EVP_CipherUpdate(e, NULL, &_, out, RECORD_HEADER_BYTES) == 1 and EVP_CipherUpdate(e, to, &_, to, <int>n + 1) == 1
    else:
        whole = (EVP_CipherUpdate(e, NULL, &_, out, RECORD_HEADER_BYTES) == 1
                 and (n == 0 or EVP_CipherUpdate(e, to, &_, p, <int>n) == 1) and EVP_CipherUpdate(e, to + n, &_, &content, 1) == 1)
    if (not whole or EVP_CipherFinal_ex(e, to + n + 1, &_) != 1
            or EVP_CIPHER_CTX_ctrl(e, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, to + n + 1) != 1):
        return -1
    return <int>(RECORD_HEADER_BYTES + size)


cdef int records_renew(Records* x, uint8_t* out) noexcept nogil:
    """The answer to KeyUpdates must be sent before the next data, and one is enough for many [4.6.3]. So a peer that only sends
    KeyUpdates triggers no output. The new key applies after the message."""
    cdef uint8_t message[5]     # size is KEY_UPDATE_BYTES
    cdef int n
    if not x.update_due and x.blocks < x.suite.blocks_max:
        return 0
    message[0] = KEY_UPDATE
    message[1] = message[2] = 0
    message[3] = 1
    message[4] = 0              # update_not_requested
    n = records_seal(x, TYPE_HANDSHAKE, message, KEY_UPDATE_BYTES, out)
    if n < 0 or half_renew(x.suite, SEALING, &x.ours) != 0:
        return -1
    x.update_due = 0
    x.blocks = 0
    return n


cdef int records_alert(Records* x, uint8_t alert, uint8_t* out) noexcept nogil:
    cdef uint8_t message[2]
    message[0] = LEVEL_WARNING if alert == ALERT_CLOSE_NOTIFY else LEVEL_FATAL
    message[1] = alert
    return records_seal(x, TYPE_ALERT, message, 2, out)


# ---------------------------------------------------------------- opening

cdef int records_refuse(Records* x, uint8_t alert) noexcept nogil:
    x.ended = ENDED_BY_US
    x.alert = alert
    return -1


cdef int record_unseal(Records* x, const uint8_t* p, uint32_t n, uint8_t* out, uint8_t* content) noexcept nogil:
    """Open the record with n bytes after the header at p, and return the size of its content, or -1.
    `content` gets the type [5.2, 5.4]."""
    cdef Suite* s = x.suite
    cdef EVP_CIPHER_CTX* e = s.ctx[OPENING]
    cdef const uint8_t* sealed = p + RECORD_HEADER_BYTES
    cdef uint8_t nonce[12]
    cdef uint8_t rest[16]
    cdef int _, size = <int>n - TAG_BYTES
    if size < 0:
        return records_refuse(x, ALERT_BAD_RECORD_MAC)
    if next_nonce(&x.peers, nonce) != 0 or not suite_use_key(s, OPENING, &x.peers, nonce):
        return records_refuse(x, ALERT_INTERNAL_ERROR)
    if (EVP_CIPHER_CTX_ctrl(e, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, <void*>(sealed + size)) != 1
            or EVP_CipherUpdate(e, NULL, &_, p, RECORD_HEADER_BYTES) != 1
            or (size and EVP_CipherUpdate(e, out, &_, sealed, size) != 1)
            or EVP_CipherFinal_ex(e, rest, &_) != 1):    # compares tags in constant time
        return records_refuse(x, ALERT_BAD_RECORD_MAC)
    if size > RECORD_BYTES + 1:
        return records_refuse(x, ALERT_RECORD_OVERFLOW)
    while size and out[size - 1] == 0:   # padding
        size -= 1
    if size == 0:
        return records_refuse(x, ALERT_UNEXPECTED_MESSAGE)       # a record without a type
    content[0] = out[size - 1]
    return size - 1


cdef int count_empty(Records* x) noexcept nogil:
    """Count a record without data. Such records hide traffic [5.4] and a client may send them at any time, but not so
    many that they keep the loop busy."""
    x.empties += 1
    return records_refuse(x, ALERT_UNEXPECTED_MESSAGE) if x.empties > EMPTIES_MAX else 0


cdef int handle_alert_record(Records* x, const uint8_t* p, uint32_t n) noexcept nogil:
    """Handle an alert, which must be whole and alone in its record [5.1]. All alerts but two end the
    connection, whatever their level [6]."""
    if n != 2:
        return records_refuse(x, ALERT_DECODE_ERROR if n else ALERT_UNEXPECTED_MESSAGE)
    if p[1] == ALERT_USER_CANCELED:
        return count_empty(x)          # close_notify follows [6.1]
    x.ended = ENDED_BY_CLOSE if p[1] == ALERT_CLOSE_NOTIFY else ENDED_BY_PEER
    x.alert = p[1]
    return -1


cdef int handle_handshake_record(Records* x, const uint8_t* p, uint32_t n) noexcept nogil:
    """Handle a handshake message. After the handshake a client may only send KeyUpdate, because the broker requests no
    certificate then [4.6]. It may be split over several records [5.1], and must end with a record, because the key changes there.
    """
    cdef uint8_t* m = x.message
    if n == 0 or n > <uint32_t>(KEY_UPDATE_BYTES - x.message_n):
        return records_refuse(x, ALERT_UNEXPECTED_MESSAGE)
    memcpy(m + x.message_n, p, n)
    x.message_n += <uint8_t>n
    if m[0] != KEY_UPDATE:
        return records_refuse(x, ALERT_UNEXPECTED_MESSAGE)
    if x.message_n < KEY_UPDATE_BYTES:
        return 0
    x.message_n = 0
    if m[1] or m[2] or m[3] != 1:
        return records_refuse(x, ALERT_DECODE_ERROR)
    if m[4] > 1:
        return records_refuse(x, ALERT_ILLEGAL_PARAMETER)
    x.renewals += 1
    if x.renewals > KEY_UPDATES_MAX:     # each KeyUpdate costs some microseconds
        return records_refuse(x, ALERT_UNEXPECTED_MESSAGE)
    if half_renew(x.suite, OPENING, &x.peers) != 0:
        return records_refuse(x, ALERT_INTERNAL_ERROR)
    if m[4]:
        x.update_due = 1
    return 0


cdef size_t records_open(Records* x, const uint8_t* p, size_t n, uint8_t* out, size_t* out_n, uint64_t now_s) noexcept nogil:
    cdef size_t at = 0, total = 0
    cdef uint32_t size
    cdef uint8_t content = 0
    cdef int got
    if x.counted_s != now_s:
        x.counted_s = now_s
        x.renewals = x.empties = 0
    while x.ended == ENDED_NOT and n - at >= RECORD_HEADER_BYTES:
        size = <uint32_t>p[at + 3] << 8 | p[at + 4]
        if p[at] != TYPE_DATA:
            # All records are encrypted now, alerts too, and ChangeCipherSpec is not allowed any more [5, D.4].
            records_refuse(x, ALERT_UNEXPECTED_MESSAGE)
        elif size > RECORD_BYTES + RECORD_EXTRA:
            records_refuse(x, ALERT_RECORD_OVERFLOW)     # before the record has arrived
        elif n - at - RECORD_HEADER_BYTES < size:
            break
        else:
            got = record_unseal(x, p + at, size, out + total, &content)
            at += RECORD_HEADER_BYTES + size
            if got < 0:
                break
            if x.message_n and content != TYPE_HANDSHAKE:
                records_refuse(x, ALERT_UNEXPECTED_MESSAGE)      # inside an unfinished message [5.1]
            elif content == TYPE_DATA and got:
                x.empties = 0
                total += <size_t>got
            elif content == TYPE_DATA:
                count_empty(x)
            elif content == TYPE_ALERT:
                handle_alert_record(x, out + total, <uint32_t>got)
            elif content == TYPE_HANDSHAKE:
                handle_handshake_record(x, out + total, <uint32_t>got)
            else:
                records_refuse(x, ALERT_UNEXPECTED_MESSAGE)
    out_n[0] = total
    return n if x.ended != ENDED_NOT else at
