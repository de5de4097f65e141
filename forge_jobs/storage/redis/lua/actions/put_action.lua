-- Stores the record of an action, once. Actions that have ended by themselves leave the list.
local FORGOTTEN_AT_ONCE = 20

local function forget(base)
  for _, id in ipairs(redis.call('ZRANGE', base .. ':actions', 0, FORGOTTEN_AT_ONCE - 1)) do
    if redis.call('EXISTS', base .. ':action:' .. id) == 0 then
      redis.call('ZREM', base .. ':actions', id)
    end
  end
end

local function handle(base, request)
  local id, document, seconds = unpack(request)
  local key = base .. ':action:' .. id
  if redis.call('EXISTS', key) == 1 then
    return false
  end
  forget(base)
  redis.call('HSET', key, 'at', text(now), 'document', document)
  redis.call('PEXPIRE', key, seconds * 1000)
  -- Marks of keys, whose ids have no time, are in no list.
  if id >= '0000000001' then
    redis.call('ZADD', base .. ':actions', 0, id)
  end
  return true
end
