"""The scripts that Redis runs. Each is atomic, and has the same result when it is sent again after a lost reply.

All keys of a cluster have one hash tag:

    mosq:{CLUSTER}:cluster          hash: id, protocol, salt and proof of the secret, key of client ids, and the
                                    values that are fixed (registry.py); "store W" for each worker W, from 1, whose
                                    store was made
    mosq:{CLUSTER}:beats            hash: node -> beat
    mosq:{CLUSTER}:announcements    hash: node -> announcement
    mosq:{CLUSTER}:workers          hash: number from 0 -> entry

`entries.py` has the meaning of these texts. The scripts compare entries as texts, so a token never becomes a number of
Lua. Each script gets these four keys, and the id of the cluster in front of its own arguments.
"""

ID_CHARACTERS = 8               # of the cluster's id in the name of a store

_CHECK = """
local id = redis.call('HGET', KEYS[1], 'id')
if not id then return {'missing'} end
if id ~= ARGV[1] then return {'another'} end
local function all()
    return {'done', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[4])}
end
local function state(name, run)
    local beat = redis.call('HGET', KEYS[2], name)
    if not beat then return 'unknown', '' end
    if string.sub(beat, 1, #run + 1) ~= run .. ' ' then return 'used', beat end
    return 'done', beat
end
"""

# field value ...: makes a cluster, or leaves the one that is there. Returns all fields
CREATE = """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
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

# name, run, number, announcement or ''. A beat that was overtaken by a later one changes nothing
BEAT = _ALWAYS + """
local status, beat = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
if tonumber(ARGV[4]) > tonumber(string.sub(beat, #ARGV[3] + 2)) then
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
    if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[2], ARGV[5]) end
end
return all()
"""

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

# name, run
LEAVE = _ALWAYS + """
if state(ARGV[2], ARGV[3]) == 'done' then
    redis.call('HDEL', KEYS[2], ARGV[2])
    redis.call('HDEL', KEYS[3], ARGV[2])
end
return {'done'}
"""

# protocol: raises it, if every node that is known understands it. Returns 'done', or the name of a node that does not
RAISE = _CHECK + """
local nodes = redis.call('HGETALL', KEYS[3])
for place = 1, #nodes, 2 do
    local known = cjson.decode(nodes[place + 1])['protocols']
    if tonumber(ARGV[2]) > known[2] then return {'changed', nodes[place]} end
end
if tonumber(ARGV[2]) > tonumber(redis.call('HGET', KEYS[1], 'protocol')) then
    redis.call('HSET', KEYS[1], 'protocol', ARGV[2])
end
return {'done'}
"""


def keys_of(cluster: str) -> list[str]:
    """Return the keys of a cluster, in the order in which the scripts expect them."""
    return [f"mosq:{{{cluster}}}:{name}" for name in ("cluster", "beats", "announcements", "workers")]


def store_name(cluster: str, cluster_id: str, worker: int) -> str:
    """Return the name of the store of a worker, from 1. It is the hash tag of the store's keys. It has a part of the
    cluster's id: a cluster that is created again does not find the old stores."""
    return f"{cluster}:{cluster_id[:ID_CHARACTERS]}:{worker}"


def store_head(name: str) -> str:
    """Return the key that each store has."""
    return f"mosq:{{{name}}}:head"


def store_mark(worker: int) -> str:
    """Return the field of the cluster's hash that says that the store of a worker, from 1, was made."""
    return f"store {worker}"
