-- Series: hash 'fm:<minute>' and 'fh:<hour>', kind -> msgpack of { counts by name, delay, processing,
-- total, depth }, names or buckets and counts in turn, see storage/history/series.py. Kind '' is the whole
-- queue, or under the base of the fleet the whole store. Zsets 'flow_minutes' and 'flow_hours' have all.
-- Used with queues and histograms.
local SERIES = { { 60000000, ':fm:', ':flow_minutes' }, { HOUR, ':fh:', ':flow_hours' } }

local RECORD = { 'table', 'table', 'table', 'table', 'table' }

-- Returns the parts of a record, empty ones where the text is unreadable.
local function unpack_record(packed)
  return packed and unpacked(packed, RECORD) or { {}, {}, {}, {}, {} }
end

local function add_record(key, kind, parts)
  local stored = unpack_record(redis.call('HGET', key, kind))
  for index = 1, 4 do
    local sums = {}
    add_pairs(sums, stored[index])
    add_pairs(sums, parts[index] or {})
    stored[index] = as_pairs(sums)
  end
  for index, number in ipairs(parts[5] or {}) do
    stored[5][index] = math.max(whole(stored[5][index], number), number)
  end
  redis.call('HSET', key, kind, cmsgpack.pack(stored))
end

-- Adds to the minute and to its hour. parts: as of a record, a tail may be left out.
local function add_to_series(base, kind, minute, parts)
  for _, place in ipairs(SERIES) do
    local at = text(minute - minute % place[1])
    add_record(base .. place[2] .. at, kind, parts)
    redis.call('ZADD', base .. place[3], at, at)
  end
end

-- Adds to what was counted in all. Kept until the queue goes. A queue that was deleted gets no total, which
-- a later queue of that name would have.
local function add_to_total(base, kind, parts)
  if has_queue(base) then
    add_record(base .. ':flow_totals', kind, parts)
  end
end
