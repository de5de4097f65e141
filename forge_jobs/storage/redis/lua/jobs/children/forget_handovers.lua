-- allow-oom
-- Forgets handovers that are done: { seq, parent, status of the parent, child, when the parent ended, the word
-- and the number of deliver.lua }. A child whose edge has not settled gets the parent's next end too. A child on
-- which the handover had no effect, as a requeue was to follow, gets another one unless the requeue has come.
-- uses: jobs letters endings edges handing linking standing
local function is_there(base, parent, ended)
  local born = redis.call('HGET', base .. ':j:' .. parent, 'enqueued')
  return born and tonumber(born) <= ended
end

local function handle(base, told)
  for _, each in ipairs(told) do
    local seq, parent, status, child, ended, word, since = unpack(each)
    local key = base .. ':told:' .. seq
    local edge = redis.call('HGET', key, child)
    redis.call('HDEL', key, child)
    if edge and WAITS[word] then
      if is_lost(base, parent, child, word) then
        tell_anew(base, parent, child, edge, since)
      end
    elseif edge and word == 'wait' and is_there(base, parent, ended) then
      note_children(base, parent, { child, edge })
    end
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':handovers', seq .. ' ' .. parent .. ' ' .. status)
    end
  end
end
