-- Jobs that a claim has met and cannot read. Used with jobs.lua.

local function put_on_hold(base, id, kind)
  redis.call('ZADD', base .. ':held', now, id)
  redis.call('ZADD', base .. ':held:' .. kind, now, id)
end

-- Puts a job on hold that is in no line any more. Returns why. A job without a record is in no list of
-- waiting jobs any more either: nothing is left to be read, and the id may be enqueued anew.
local function set_aside(base, id, kind)
  local key = base .. ':j:' .. id
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', base .. ':s:pending', id)
    redis.call('ZREM', base .. ':s:failed', id)
    redis.call('ZREM', base .. ':expiring', id)
    redis.call('ZADD', base .. ':gone', now, id)
    return 'its record is gone'
  end
  free_permit(base, read_fields(key, 'permit')[1])
  put_on_hold(base, id, kind)
  local held = redis.pcall('HSET', key, 'hold', 'unreadable', 'more', '1')
  if type(held) == 'table' and held.err then
    return 'its key holds no hash'
  end
  return 'a field is missing, or is no whole number'
end
