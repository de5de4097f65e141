-- no-writes
-- Loads of the limits by key of a queue: { how many full keys of each }. Of each
-- limit { name, number, share, jobs in progress, jobs on hold, when the oldest is due, full keys, those of them at
-- which jobs wait }, and of such a key { key, jobs in progress, jobs on hold, when the first is due, time of the
-- newest claim, kinds in progress }, the longest without a claim first.
local MOST_CLAIMED, MOST_KEYS, MOST_HOLDERS = 5000, 1000, 5

-- Returns how many jobs in progress each permit of a limit has: name -> permit -> number.
local function permits_in_use(base)
  local used = {}
  for _, id in ipairs(read_record('ZRANGE', base .. ':claimed', 0, MOST_CLAIMED - 1) or {}) do
    local permit = unpack(read_fields(base .. ':j:' .. id, 'permit'))
    if permit then
      local name = string.match(permit, '^[^\n]*')
      used[name] = used[name] or {}
      used[name][permit] = (used[name][permit] or 0) + 1
    end
  end
  return used
end

-- Returns how many jobs are on hold for a permit, and when the first of them is due.
local function parked_of(base, permit)
  local key = base .. ':parked:' .. permit
  local first = (read_record('ZRANGE', key, 0, 0) or {})[1]
  return first and read_record('ZCARD', key) or 0, first and whole(string.sub(first, 11, 26)) or -1
end

local function kinds_of(base, ids)
  local kinds, seen = {}, {}
  for _, id in ipairs(ids) do
    local kind = unpack(read_fields(base .. ':j:' .. id, 'kind'))
    if kind and not seen[kind] then
      seen[kind], kinds[#kinds + 1] = true, kind
    end
  end
  return kinds
end

local function full_key(base, permit, number, waiting, due)
  local using = base .. ':using:' .. permit
  local newest = read_record('ZRANGE', using, -1, -1, 'WITHSCORES') or {}
  local kinds = kinds_of(base, read_record('ZRANGE', using, 0, MOST_HOLDERS - 1) or {})
  return { string.match(permit, '\n(.*)$'), number, waiting, due, whole(newest[2], now), kinds }
end

local function load_of(base, name, stored, used, most)
  local number, share = string.match(stored, '^(%-?%d*)/?(%d*)')
  local at_most, keys = whole(number, 0), {}
  local load = { name, at_most, whole(share, -1), 0, 0, -1, 0 }
  local from, to = '[' .. name .. '\n', '(' .. name .. '\11'
  for _, permit in ipairs(redis.call('ZRANGE', base .. ':parks', from, to, 'BYLEX', 'LIMIT', 0, MOST_KEYS)) do
    local waiting, due = parked_of(base, permit)
    load[5] = load[5] + waiting
    load[6] = due >= 0 and (load[6] < 0 or due < load[6]) and due or load[6]
  end
  for permit, size in pairs(used) do
    local is_full = at_most > 0 and size >= at_most
    load[4], load[7] = load[4] + size, load[7] + (is_full and 1 or 0)
    local waiting, due = parked_of(base, permit)
    if is_full and waiting > 0 then
      keys[#keys + 1] = full_key(base, permit, size, waiting, due)
    end
  end
  table.sort(keys, function(one, other)
    return one[5] < other[5] or one[5] == other[5] and one[1] < other[1]
  end)
  load[8] = { unpack(keys, 1, math.min(#keys, most)) }
  return load
end

local function handle(base, request)
  local most = unpack(request)
  local used, loads, limits = permits_in_use(base), {}, read_record('HGETALL', base .. ':at_most') or {}
  spend(1000)
  for index = 1, #limits, 2 do
    loads[#loads + 1] = load_of(base, limits[index], limits[index + 1], used[limits[index]] or {}, most)
  end
  return loads
end
