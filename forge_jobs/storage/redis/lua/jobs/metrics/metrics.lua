-- no-writes
-- The first minutes, or hours, of a range, summed over pods: { minute, counts, processing, total } each.
-- uses: histograms
local function counts_of(key)
  local sums, fields = {}, redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    add_pairs(sums, { string.match(fields[index], '^[^\n]*'), whole(fields[index + 1], 0) })
  end
  return as_pairs(sums)
end

local function latencies_of(key)
  local processing, total = {}, {}
  for _, packed in ipairs(redis.call('HVALS', key)) do
    local more_processing, more_total = unpack_latency(packed)
    add_pairs(processing, more_processing)
    add_pairs(total, more_total)
  end
  return as_pairs(processing), as_pairs(total)
end

local function handle(base, request)
  local first, last, most, list, counters, latencies = unpack(request)
  local minutes = redis.call(
    'ZRANGE', base .. list, text(first), text(last), 'BYSCORE', 'LIMIT', 0, most
  )
  for index, minute in ipairs(minutes) do
    minutes[index] = {
      tonumber(minute), counts_of(base .. counters .. minute), latencies_of(base .. latencies .. minute),
    }
  end
  return minutes
end
