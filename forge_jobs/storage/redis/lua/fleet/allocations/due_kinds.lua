-- no-writes
-- How many jobs of each line are due: { { kind, number } .. }. None while the queue is paused or
-- cools down.
-- uses: ready
local function is_held_up(base)
  local paused, cooldown_until =
    unpack(redis.call('HMGET', base .. ':queue', 'paused', 'cooldown_until'))
  return paused or (cooldown_until and whole(cooldown_until, 0) > now)
end

local function handle(base)
  local found = {}
  if is_held_up(base) then
    return found
  end
  local lines = all_lines(base)
  spend(#lines + 2)
  for _, name in ipairs(lines) do
    local due = redis.call('ZCOUNT', base .. ':ready:' .. name, '-inf', text(now))
    if due > 0 then
      found[#found + 1] = { parse_line(name).kind, due }
    end
  end
  return found
end
