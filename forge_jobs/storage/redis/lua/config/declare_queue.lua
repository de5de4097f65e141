-- allow-oom
-- Declares a queue (code), or edits one (an operator, whose settings code does not change any more).
-- settings: (name, fields and values in turn) ... Answers the state.
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
  local defaults, settings, by_operator = unpack(request)
  local key = base .. ':queue'
  ensure_queue(base, defaults)
  for _, setting in ipairs(settings) do
    local name, fields = unpack(setting)
    if by_operator then
      redis.call('HSET', key, 'set_' .. name, '1')
    end
    if by_operator or not redis.call('HGET', key, 'set_' .. name) then
      change(base, name, fields)
    end
  end
  if by_operator then
    wake('beat')
    wake('fleet')
  end
  return queue_state(base)
end
