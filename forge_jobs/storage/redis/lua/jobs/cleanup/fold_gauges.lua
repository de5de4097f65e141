-- allow-oom
-- Folds the oldest minutes of pods that are past their time into their hours, until `limit` measurements
-- have been folded. Answers how many minutes. Of each pod the last measurement of the hour stays.
-- uses: ages
local function handle(base, request)
  local minutes_kept, hours_kept, limit = unpack(request)
  local folded, rows = 0, 0
  for _, minute in ipairs(oldest_foldable(base .. ':gauges', minutes_kept, hours_kept, limit)) do
    if rows >= limit then
      break
    end
    local hour = text(hour_of(tonumber(minute)))
    local measured = redis.call('HGETALL', base .. ':g:' .. minute)
    for index = 1, #measured, 2 do
      redis.call('HSET', base .. ':hg:' .. hour, measured[index], measured[index + 1])
    end
    end_hour(hours_kept, base .. ':hg:' .. hour)
    redis.call('DEL', base .. ':g:' .. minute)
    redis.call('ZREM', base .. ':gauges', minute)
    redis.call('ZADD', base .. ':pod_hours', hour, hour)
    rows = rows + 1 + #measured / 2
    folded = folded + 1
  end
  return folded
end
