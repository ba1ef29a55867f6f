"""The texts of the functions in Redis. Their errors begin with a word that files.pyx looks for: FENCED (another owner has the
store), EMPTY (there is no such store), MISSING (an earlier operation is missing), LOST (operations that were confirmed are gone).

The head also has the length of each content, as the operations have left it: a content that is shorter was cut by another program
(mosq/cluster/stores.py).

Out of memory, Redis refuses a command that may need memory, but only before the first write of a function. An operation that
needs no more memory begins with a DEL of nothing, so it is never refused: without that, a full Redis could not be cleaned.
"""

cdef const char* CLAIM_TEXT = b"""
local head = redis.call('HMGET', KEYS[1], 'token', 'number', 'owner', 'before')
local token, before = ARGV[1], head[3]
redis.call('DEL', KEYS[1] .. ':none')
if not head[1] then
    if ARGV[3] == '0' then return redis.error_reply('EMPTY there is no such store') end
    head = {'0', '0', ''}
    before = ''
end
if not head[2] then return redis.error_reply('DAMAGED it lacks a number') end
if head[3] == ARGV[4] then
    token, before = head[1], head[4]
else
    if token == '0' then
        token = string.format('%.0f', tonumber(head[1]) + 1)
    elseif tonumber(token) <= tonumber(head[1]) then
        return redis.error_reply('FENCED by token ' .. head[1])
    end
    if ARGV[2] ~= '-1' and ARGV[6] ~= before then
        return redis.error_reply('FENCED by another owner with token ' .. head[1])
    end
    if ARGV[2] ~= '-1' and ARGV[2] ~= head[2] then
        return redis.error_reply('LOST the store ends with operation ' .. head[2])
    end
    redis.call('HSET', KEYS[1], 'token', token, 'number', head[2], 'sized', token .. ' ' .. head[2], 'owner', ARGV[4], 'before', before)
    for _, key in ipairs(redis.call('HKEYS', KEYS[3])) do redis.call('DEL', key) end
    redis.call('DEL', KEYS[3])
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        if string.sub(field, 1, #ARGV[5]) == ARGV[5] then redis.call('HDEL', KEYS[1], field) end
    end
    for _, content in ipairs(redis.call('HVALS', KEYS[2])) do
        local length = redis.call('STRLEN', ARGV[5] .. content)
        if length > 0 then redis.call('HSET', KEYS[1], ARGV[5] .. content, length) end
    end
end
redis.call('HINCRBY', KEYS[1], 'connections', 1)
local out = {token, head[2], before}
if ARGV[2] == '-1' then
    local names = redis.call('HGETALL', KEYS[2])
    for i = 1, #names, 2 do
        out[#out + 1] = names[i]
        out[#out + 1] = names[i + 1]
        out[#out + 1] = tostring(redis.call('STRLEN', ARGV[5] .. names[i + 1]))
    end
end
return out
"""

cdef const char* APPLY_TEXT = b"""
local head = redis.call('HMGET', KEYS[1], 'token', 'number')
if not head[1] then return redis.error_reply('EMPTY there is no such store') end
if head[1] ~= ARGV[1] then return redis.error_reply('FENCED by token ' .. head[1]) end
local last, number = tonumber(head[2]), tonumber(ARGV[2])
if number <= last then return last end
if number > last + 1 then return redis.error_reply('MISSING an operation after ' .. head[2]) end
local kind, x, y, z = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local function remove()
    redis.call('DEL', KEYS[4])
    redis.call('HDEL', KEYS[1], KEYS[4])
end
local function let_go(how)
    if how == '1' then remove() end
    if how == '2' then redis.call('HSET', KEYS[3], KEYS[4], '1') end
end
if kind == 'write' then
    if z == '1' then redis.call('DEL', KEYS[1] .. ':none') end
    local length = redis.call('SETRANGE', KEYS[4], x, y)
    redis.call('HSET', KEYS[1], 'number', ARGV[2], 'sized', ARGV[1] .. ' ' .. ARGV[2], KEYS[4], length)
    return number
elseif kind == 'cut' then
    local n = tonumber(x)
    redis.call('DEL', KEYS[1] .. ':none')
    if n == 0 then remove()
    else
        if n < redis.call('STRLEN', KEYS[4]) then redis.call('SET', KEYS[4], redis.call('GETRANGE', KEYS[4], 0, n - 1))
        else redis.call('SETRANGE', KEYS[4], n - 1, string.char(0)) end
        redis.call('HSET', KEYS[1], KEYS[4], n)
    end
elseif kind == 'create' then
    redis.call('HSET', KEYS[2], x, y)
elseif kind == 'unlink' then
    redis.call('HDEL', KEYS[2], x)
    let_go(z)
elseif kind == 'rename' then
    local content = redis.call('HGET', KEYS[2], x)
    redis.call('HDEL', KEYS[2], x)
    redis.call('HSET', KEYS[2], y, content)
    let_go(z)
else
    remove()
    redis.call('HDEL', KEYS[3], KEYS[4])
end
redis.call('HSET', KEYS[1], 'number', ARGV[2], 'sized', ARGV[1] .. ' ' .. ARGV[2])
return number
"""

cdef const char* READ_TEXT = b"""
local token = redis.call('HGET', KEYS[1], 'token')
if not token then return redis.error_reply('EMPTY there is no such store') end
if token ~= ARGV[1] then return redis.error_reply('FENCED by token ' .. token) end
return redis.call('GETRANGE', KEYS[2], ARGV[2], ARGV[3])
"""

cdef const char* READ_MANY_TEXT = b"""
local token = redis.call('HGET', KEYS[1], 'token')
if not token then return redis.error_reply('EMPTY there is no such store') end
if token ~= ARGV[1] then return redis.error_reply('FENCED by token ' .. token) end
local out = {}
for i = 2, #ARGV, 2 do out[i / 2] = redis.call('GETRANGE', KEYS[2], ARGV[i], ARGV[i + 1]) end
return out
"""


cdef const char* script_claim() noexcept nogil:
    return CLAIM_TEXT


cdef const char* script_apply() noexcept nogil:
    return APPLY_TEXT


cdef const char* script_read() noexcept nogil:
    return READ_TEXT


cdef const char* script_read_many() noexcept nogil:
    return READ_MANY_TEXT
