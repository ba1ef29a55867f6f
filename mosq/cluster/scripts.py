"""The scripts that Redis runs. Each is atomic, and has the same result when it is sent again after a lost reply.

All keys of a cluster have one hash tag:

    mosq:{CLUSTER}:cluster          hash: id, protocol, salt and proof of the secret, key of client ids, and the
                                    values that are fixed (registry.py); "store W" for each worker W, from 1, whose
                                    store was made
    mosq:{CLUSTER}:beats            hash: node -> beat
    mosq:{CLUSTER}:announcements    hash: node -> announcement
    mosq:{CLUSTER}:workers          hash: number from 0 -> entry
    mosq:{CLUSTER}:away             hash: node -> the run of it that an operator has sent away: it runs no worker
    mosq:{CLUSTER}:figures          hash: number from 0 -> what the worker noted last, for people (figures.py); "lost W"
                                    for each worker W, from 1, that has lost acknowledged messages -> when and why;
                                    "ends W" for each worker W whose processes have ended -> how often; "options NODE"
                                    -> what all nodes should have alike (alike.py);
                                    "dynsec NODE" -> the version of the document that this node uses
    mosq:{CLUSTER}:dynsec           hash: the document of dynamic security, `text`, and its `stamp`; `past`: the last
                                    stamps; `read`: changes with each reading

A stamp is VERSION.ID: a number from 1, and random digits that no other document has. "" stands for no document.
`entries.py` has the meaning of the other texts. The scripts compare entries as texts, so a token never becomes a number
of Lua. Each script gets these keys, and the id of the cluster in front of its own arguments.
"""

import hashlib

from mosq.cluster.entries import ANNOUNCEMENT_MAX, LARGE, NUMBER_DIGITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ID_CHARACTERS = 8               # of the cluster's id in the name of a store
USES = "dynsec "                # with the name of a node: a field of the figures
DOCUMENT_MARK = "dynsec"        # field of the cluster's hash: a document was made
LOSS, ENDS = "lost ", "ends "   # with the number of a worker: fields of the figures
OPTIONS = "options "            # with the name of a node: a field of the figures
STORE_FOLDER = "/store"         # of the files of a worker's store, whose names are fields of a hash
SEGMENT = f"{STORE_FOLDER}/segment."     # begin of the name of each file of the log
STREAMS_FOLDER = f"{STORE_FOLDER}/streams"
STREAM_ID_BYTES = 16

_CHECK = """
local id = redis.call('HGET', KEYS[1], 'id')
if not id then return {'missing'} end
if id ~= ARGV[1] then return {'another'} end
local function stamp()
    local found = redis.pcall('HGET', KEYS[7], 'stamp')     -- a damaged key is no reason to end leases
    return type(found) == 'string' and string.sub(found, 1, 64) or ''
end
local function announcements()
    local found = redis.call('HGETALL', KEYS[3])
    for i = 2, #found, 2 do
        if #found[i] > MOST then found[i] = 'LARGE' .. #found[i] end
    end
    return found
end
local function all()
    return {'done', redis.call('HGETALL', KEYS[2]), announcements(), redis.call('HGETALL', KEYS[4]),
            redis.call('HGETALL', KEYS[5]), stamp()}
end
local function state(name, run)
    local beat = redis.call('HGET', KEYS[2], name)
    if not beat then return 'unknown', '' end
    if string.sub(beat, 1, #run + 1) ~= run .. ' ' then return 'used', beat end
    return 'done', beat
end
""".replace("MOST", str(ANNOUNCEMENT_MAX)).replace("LARGE", LARGE)

# field value ...: makes a cluster, or leaves the one that is there. Returns all fields
CREATE = """
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
"""

# field: notes that a store was made, before anything in it counts
MARK = """
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return redis.error_reply('EMPTY there is no such cluster') end
return redis.call('HSET', KEYS[1], ARGV[2], '1')
"""

LOOK = _CHECK + "return all()"

# Out of memory, Redis refuses a write only if it is the first one of a script: one that deletes nothing goes in
# front. So the nodes of a full Redis go on, and their clients can empty it
_ALWAYS = _CHECK + "redis.call('DEL', KEYS[1] .. ':none')"

# name, run, expected beat, announcement
JOIN = _ALWAYS + """
local status, beat = state(ARGV[2], ARGV[3])
if status == 'done' then return {'done'} end
if beat ~= ARGV[4] and status == 'used' then return {'used', beat} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' 0')
redis.call('HSET', KEYS[3], ARGV[2], ARGV[5])
return {'done'}
"""

# name, run, number, announcement or ''. A beat that was overtaken by a later one changes nothing, so that it extends no
# lease (member.py). No node has beaten so often that its number has more than 15 digits: another program has written it
BEAT = _ALWAYS + """
local status, beat = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
local last = string.match(string.sub(beat, #ARGV[3] + 2), '^%d+$')
if not last or #last > DIGITS or tonumber(ARGV[4]) > tonumber(last) then
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
    if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[2], ARGV[5]) end
end
return all()
""".replace("DIGITS", str(NUMBER_DIGITS))

# name, run, worker, expected entry, entry
CHANGE = _ALWAYS + """
local status = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
local entry = redis.call('HGET', KEYS[4], ARGV[4]) or ''
if entry == ARGV[6] then return {'done'} end
if entry ~= ARGV[5] then return {'changed'} end
redis.call('HSET', KEYS[4], ARGV[4], ARGV[6])
return {'done'}
"""

# name, run, expected beat or ''
LEAVE = _ALWAYS + """
local status, beat = state(ARGV[2], ARGV[3])
if ARGV[4] ~= '' and status ~= 'unknown' and beat ~= ARGV[4] then return {'changed'} end
if status == 'done' then
    redis.call('HDEL', KEYS[2], ARGV[2])
    redis.call('HDEL', KEYS[3], ARGV[2])
    redis.call('HDEL', KEYS[5], ARGV[2])
    redis.call('HDEL', KEYS[6], 'OPTIONS' .. ARGV[2], 'USES' .. ARGV[2])
end
return {'done'}
""".replace("OPTIONS", OPTIONS).replace("USES", USES)

# name, run, '1' or '0': send this run away, or let it come back
SEND = _CHECK + """
local status = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
if ARGV[4] == '1' then redis.call('HSET', KEYS[5], ARGV[2], ARGV[3]) else redis.call('HDEL', KEYS[5], ARGV[2]) end
return {'done'}
"""

# worker, text ...: take the figures of workers. Returns those of all
NOTE = _CHECK + """
if #ARGV > 1 then redis.call('HSET', KEYS[6], unpack(ARGV, 2)) end
return {'done', redis.call('HGETALL', KEYS[6])}
"""

# known stamp, random text: the stamp of the document, its text unless the stamp is known, and whether a document was
# made. It writes, so that the replicas confirm it: a primary that was replaced may have an old document
READ = _ALWAYS + f"""
local noted = redis.pcall('HSET', KEYS[7], 'read', ARGV[3])
if type(noted) == 'table' then return {{'done', '', '', '1'}} end     -- the key has another type
local found = stamp()
local text = found ~= ARGV[2] and redis.call('HGET', KEYS[7], 'text') or ''
return {{'done', found, text, redis.call('HEXISTS', KEYS[1], '{DOCUMENT_MARK}')}}
"""

# expected stamp, stamp, text: replaces the document if it is the expected one. Done also if an earlier copy of the
# request did it, and later documents followed. A full Redis refuses it
REPLACE = _CHECK + f"""
local found, past = stamp(), redis.call('HGET', KEYS[7], 'past') or ''
if string.find(' ' .. past, ' ' .. ARGV[3] .. ' ', 1, true) then
    redis.call('HSET', KEYS[7], 'read', ARGV[3])        -- so that the replicas confirm it
    return {{'done', found}}
end
if found ~= ARGV[2] then return {{'changed', found}} end
if found == '' and redis.call('HEXISTS', KEYS[1], '{DOCUMENT_MARK}') == 1 then return {{'changed', found}} end
past = past .. ARGV[3] .. ' '
if #past > 1000 then past = string.match(past, ' (.*)') end
redis.call('HSET', KEYS[7], 'stamp', ARGV[3], 'text', ARGV[4], 'past', past)
redis.call('HSET', KEYS[1], '{DOCUMENT_MARK}', '1')
return {{'done', ARGV[3]}}
"""

# prefix of the contents: reads a store (cext/redis) and changes nothing. Its keys are the head, the names and the
# contents that wait for their removal. Returns them, and for each name the length of its content and, of a segment
# (cext/store/format.pxd), from the copy of its header that counts: id of the store, number, base and tail
STORE = """
local function header(content)
    local found
    for _, at in ipairs({0, 2048}) do
        local bytes = redis.call('GETRANGE', content, at, at + 63)
        if #bytes == 64 and string.sub(bytes, 1, 7) == 'mosqlog' then
            local function hex(c) return string.format('%02x', string.byte(c)) end
            local id = string.gsub(string.sub(bytes, 17, 32), '.', hex)
            local number, base, tail = struct.unpack('<I8I8I8', string.sub(bytes, 33, 56))
            if not found or number > found[2] or (number == found[2] and tail > found[4]) then
                found = {id, number, base, tail}
            end
        end
    end
    if not found then return {} end
    return {found[1], string.format('%.0f', found[2]), string.format('%.0f', found[3]), string.format('%.0f', found[4])}
end
local names, files = redis.call('HGETALL', KEYS[2]), {}
for i = 1, #names, 2 do
    local content = ARGV[1] .. names[i + 1]
    local head = string.match(names[i], '/segment%.%d+$') and header(content) or {}
    files[#files + 1] = {names[i], names[i + 1], tostring(redis.call('STRLEN', content)), head}
end
return {redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[3]), files}
"""

# prefix of the contents, begin of a name: the files of a worker whose names begin so, and their lengths. Those that end
# with one of the names of a mark (cext/journal) come with their content, so that it belongs to the others
FILES = """
local names, found = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #names, 2 do
    if string.sub(names[i], 1, #ARGV[2]) == ARGV[2] then
        local content = ARGV[1] .. names[i + 1]
        local mark = string.match(names[i], '/mark%.[ab]$') and redis.call('GET', content) or ''
        found[#found + 1] = {names[i], content, redis.call('STRLEN', content), mark}
    end
end
return found
"""


def keys_of(cluster: str) -> list[str]:
    """Return the keys of a cluster, in the order in which the scripts expect them."""
    names = "cluster", "beats", "announcements", "workers", "away", "figures", "dynsec"
    return [f"mosq:{{{cluster}}}:{name}" for name in names]


def store_name(cluster: str, id: str, worker: int) -> str:
    """Return the name of the store of a worker, from 1. It is the hash tag of the store's keys. `id`: of the cluster,
    so that a cluster which is created again does not find the old stores."""
    return f"{cluster}:{id[:ID_CHARACTERS]}:{worker}"


def head_of(store: str) -> str:
    """Return the key that each store has."""
    return keys_of_store(store)[0]


def keys_of_store(store: str) -> list[str]:
    """Return the keys of a worker's store, in the order in which STORE expects them, and the prefix of its contents."""
    return [f"mosq:{{{store}}}:{name}" for name in ("head", "names", "gone", "f:")]


def others_of(store: str) -> str:
    """Return the key of the files that other programs write for a worker (cext/redis/files.pxd)."""
    return f"mosq:{{{store}}}:others"


def stream_id(id: str, name: str) -> str:
    """Return the id that all parts of a stream have, in hexadecimal digits. `id`: of the cluster."""
    return hashlib.blake2b(f"{id} {name}".encode(), digest_size=STREAM_ID_BYTES).hexdigest()


def store_mark(worker: int) -> str:
    """Return the field of the cluster's hash that says that the store of a worker, from 1, was made."""
    return f"store {worker}"


def figures_of_cluster(cluster: str) -> str:
    """Return the key of what the workers of a cluster note."""
    return keys_of(cluster)[5]


def of_workers(noted: "Mapping[str, str]", prefix: str = "") -> dict[int, str]:
    """Return the texts of the fields of the figures that name a worker behind a prefix, by that number."""
    return {int(field.removeprefix(prefix)): text for field, text in noted.items()
            if field.startswith(prefix) and field.removeprefix(prefix).isdecimal()}


def of_nodes(noted: "Mapping[str, str]", prefix: str = OPTIONS) -> dict[str, str]:
    """Return the texts of the fields of the figures that name a node behind a prefix, by that name."""
    return {field.removeprefix(prefix): text for field, text in noted.items() if field.startswith(prefix)}


def options_field(node: str) -> str:
    """Return the field of the figures that has the options of a node."""
    return f"{OPTIONS}{node}"


def loss_field(worker: int) -> str:
    """Return the field of the figures that says that a worker, from 0, has lost acknowledged messages."""
    return f"{LOSS}{worker + 1}"


def ends_field(worker: int) -> str:
    """Return the field of the figures that says how often the processes of a worker, from 0, have ended."""
    return f"{ENDS}{worker + 1}"


def uses_field(node: str) -> str:
    """Return the field of the figures that has the version of the document of dynamic security that a node uses."""
    return f"{USES}{node}"
