"""The scripts that Redis runs. Each is atomic, and has the same result when it is sent again after a lost reply.

All keys of a cluster have one hash tag:

    mosq:{CLUSTER}:cluster          hash: id, protocol, salt and proof of the secret, key of client ids, and the
                                    values that are fixed (registry.py)
    mosq:{CLUSTER}:beats            hash: node -> beat
    mosq:{CLUSTER}:announcements    hash: node -> announcement
    mosq:{CLUSTER}:workers          hash: number from 0 -> entry

`entries.py` has the meaning of these texts. The scripts compare entries as texts, so a token never becomes a number of
Lua. Each script gets these four keys, and the id of the cluster in front of its own arguments.
"""

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
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
"""

LOOK = _CHECK + "return all()"

# name, run, expected beat, announcement
JOIN = _CHECK + """
local status, beat = state(ARGV[2], ARGV[3])
if status == 'done' then return {'done'} end
if beat ~= ARGV[4] and status == 'used' then return {'used', beat} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' 0')
redis.call('HSET', KEYS[3], ARGV[2], ARGV[5])
return {'done'}
"""

# name, run, number, announcement or ''. A beat that was overtaken by a later one changes nothing
BEAT = _CHECK + """
local status, beat = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
if tonumber(ARGV[4]) > tonumber(string.sub(beat, #ARGV[3] + 2)) then
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
    if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[2], ARGV[5]) end
end
return all()
"""

# name, run, worker, expected entry, entry
CHANGE = _CHECK + """
local status = state(ARGV[2], ARGV[3])
if status ~= 'done' then return {status} end
local entry = redis.call('HGET', KEYS[4], ARGV[4]) or ''
if entry == ARGV[6] then return {'done'} end
if entry ~= ARGV[5] then return {'changed'} end
redis.call('HSET', KEYS[4], ARGV[4], ARGV[6])
return {'done'}
"""

# name, run, expected beat or ''
LEAVE = _CHECK + """
local status, beat = state(ARGV[2], ARGV[3])
if ARGV[4] ~= '' and status ~= 'unknown' and beat ~= ARGV[4] then return {'changed'} end
if status == 'done' then
    redis.call('HDEL', KEYS[2], ARGV[2])
    redis.call('HDEL', KEYS[3], ARGV[2])
end
return {'done'}
"""


def keys_of(cluster: str) -> list[str]:
    """Return the keys of a cluster, in the order in which the scripts expect them."""
    return [f"mosq:{{{cluster}}}:{name}" for name in ("cluster", "beats", "announcements", "workers")]
