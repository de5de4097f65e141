-- allow-oom
-- Folds the oldest minutes that are past their time into their hours, until `limit` counters and histograms
-- have been folded. Answers how many minutes.
-- uses: histograms ages
local function fold_counts(key, hour)
  local fields = redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    add_up(hour, string.match(fields[index], '^[^\n]*'), whole(fields[index + 1], 0))
  end
  return #fields / 2
end

local function fold_latencies(key, hour)
  local measured = redis.call('HVALS', key)
  for _, packed in ipairs(measured) do
    add_latency(hour, '', unpack_latency(packed))
  end
  return #measured
end

local function handle(base, request)
  local minutes_kept, hours_kept, limit = unpack(request)
  local folded, rows = 0, 0
  for _, minute in ipairs(oldest_foldable(base .. ':minutes', minutes_kept, hours_kept, limit)) do
    if rows >= limit then
      break
    end
    local hour = text(hour_of(tonumber(minute)))
    local counters, latencies = base .. ':hm:' .. hour, base .. ':hl:' .. hour
    rows = rows + 1 + fold_counts(base .. ':m:' .. minute, counters)
    rows = rows + fold_latencies(base .. ':l:' .. minute, latencies)
    end_hour(hours_kept, counters, latencies)
    redis.call('DEL', base .. ':m:' .. minute, base .. ':l:' .. minute)
    redis.call('ZREM', base .. ':minutes', minute)
    redis.call('ZREM', base .. ':unfolded', minute)
    redis.call('ZADD', base .. ':hours', hour, hour)
    folded = folded + 1
  end
  return folded
end
