-- allow-oom
-- Forgets handovers that are done: { seq, parent, status of the parent, child, when the parent ended,
-- whether the child's edge has not settled }. A child whose edge has not settled gets the parent's next end
-- too.
-- uses: jobs letters endings handing
local function is_there(base, parent, ended)
  local born = redis.call('HGET', base .. ':j:' .. parent, 'enqueued')
  return born and tonumber(born) <= ended
end

local function handle(base, told)
  for _, each in ipairs(told) do
    local seq, parent, status, child, ended, waits = unpack(each)
    local key = base .. ':told:' .. seq
    local edge = redis.call('HGET', key, child)
    redis.call('HDEL', key, child)
    if edge and waits and is_there(base, parent, ended) then
      note_children(base, parent, { child, edge })
    end
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':handovers', seq .. ' ' .. parent .. ' ' .. status)
    end
  end
end
