-- Latencies of a queue's minute: hash 'l:<minute>', pod -> msgpack of { processing, total }, each
-- bucket, count, bucket, count ... ''  stands for all pods whose rows have been folded.

local function add_pairs(sums, pairs_of)
  for index = 1, #pairs_of, 2 do
    sums[pairs_of[index]] = (sums[pairs_of[index]] or 0) + whole(pairs_of[index + 1], 0)
  end
end

local function as_pairs(sums)
  local list = {}
  for key, value in pairs(sums) do
    list[#list + 1] = key
    list[#list + 1] = value
  end
  return list
end

local LATENCY = { 'table', 'table' }

-- Returns nothing where the text cannot be read.
local function unpack_latency(packed)
  return unpack(packed and unpacked(packed, LATENCY) or { {}, {} })
end

-- Adds to what a pod has measured.
local function add_latency(key, host, processing, total)
  local sums = { {}, {} }
  for index, before in ipairs({ unpack_latency(redis.call('HGET', key, host)) }) do
    add_pairs(sums[index], before)
  end
  add_pairs(sums[1], processing)
  add_pairs(sums[2], total)
  redis.call('HSET', key, host, cmsgpack.pack({ as_pairs(sums[1]), as_pairs(sums[2]) }))
end
