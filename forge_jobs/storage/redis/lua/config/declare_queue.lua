-- allow-oom
-- Declares a queue (code), or edits one (an operator, whose settings code does not change any more).
-- settings: (name, fields and values in turn) ... declared: all that code declares, '' of an operator.
-- back: as settings, those that are the code's again, by what the caller has `seen` as declared. Answers the
-- state, nothing where another declaration came in between.
-- uses: queues
local function change(base, name, fields)
  local key = base .. ':queue'
  if redis.call('HGET', key, fields[1]) ~= fields[2] then
    redis.call('HSET', key, unpack(fields))
    if name == 'max_workers' then
      move_version(base)
      wake('fleet')
    end
  end
end

local function handle(base, request)
  local defaults, settings, by_operator, declared, back, seen = unpack(request)
  local key = base .. ':queue'
  ensure_queue(base, defaults)
  if #back > 0 and (redis.call('HGET', key, 'declared') or '') ~= seen then
    return {}
  end
  if declared ~= '' then
    redis.call('HSET', key, 'declared', declared)
  end
  for _, setting in ipairs(settings) do
    local name, fields = unpack(setting)
    if by_operator then
      redis.call('HSET', key, 'set_' .. name, '1')
    end
    if by_operator or not redis.call('HGET', key, 'set_' .. name) then
      change(base, name, fields)
    end
  end
  for _, setting in ipairs(back) do
    local name, fields = unpack(setting)
    if redis.call('HDEL', key, 'set_' .. name) == 1 then
      change(base, name, fields)
    end
  end
  if by_operator then
    wake('beat')
    wake('fleet')
  end
  return { queue_state(base) }
end
