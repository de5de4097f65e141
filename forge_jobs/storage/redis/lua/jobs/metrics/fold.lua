-- allow-oom
-- Folds rows of pods of one minute into those of all pods, at most `limit`. Answers how many, and their
-- counts by name, which are added to the series of the queue.
-- uses: queues histograms series
local function fold_counts(key, limit, sums)
  local folded = 0
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local name = string.match(field, '^([^\n]*)\n')
    if name and folded < limit then
      -- In this order, because a hash that was empty in between would lose the time to live.
      local found = whole(redis.call('HGET', key, field), 0)
      add_up(key, name, found)
      redis.call('HDEL', key, field)
      add_pairs(sums, { name, found })
      folded = folded + 1
    end
  end
  return folded
end

local function fold_latencies(key, limit)
  local folded = 0
  for _, host in ipairs(redis.call('HKEYS', key)) do
    if host ~= '' and folded < limit then
      add_latency(key, '', unpack_latency(redis.call('HGET', key, host)))
      redis.call('HDEL', key, host)
      folded = folded + 1
    end
  end
  return folded
end

local function handle(base, request)
  local minute, limit = unpack(request)
  local sums = {}
  local folded = fold_counts(base .. ':m:' .. text(minute), limit, sums)
  sums = as_pairs(sums)
  if #sums > 0 then
    add_to_series(base, '', minute, { sums })
    add_to_total(base, '', { sums })
  end
  folded = folded + fold_latencies(base .. ':l:' .. text(minute), limit - folded)
  if folded < limit then
    redis.call('ZREM', base .. ':unfolded', text(minute))
  end
  return { folded, sums }
end
