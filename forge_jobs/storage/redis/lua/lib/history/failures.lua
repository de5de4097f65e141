-- Groups of failures: hash 'eg:<group>' with kind, type, message, first, last, and lines of versions
-- and jobs. Zset 'errors' has all groups by the last failure. Hash 'eh:<hour>', group -> msgpack of
-- places and numbers in turn, see storage/history/failures.py. Zset 'error_hours' has all hours.

-- Returns the numbers, none where the text is unreadable.
local function unpack_numbers(packed)
  return packed and unpacked(packed, {}) or {}
end

-- The lines of two texts, each once, and no more of them than `most`: the last, or the first ones.
local function joined(one, other, most, are_last)
  local lines, seen = {}, {}
  for line in string.gmatch(one .. '\n' .. other, '[^\n]+') do
    if not seen[line] then
      seen[line] = true
      lines[#lines + 1] = line
    end
  end
  local from = are_last and math.max(1, #lines - most + 1) or 1
  return table.concat(lines, '\n', from, math.min(#lines, from + most - 1))
end

local GROUP = { 'kind', 'type', 'message', 'first', 'last', 'versions', 'jobs' }

-- The group, its fields as texts, then { hour, places and numbers } of the hours from `first` to `last`.
local function read_group(base, group, hours)
  local found = { group, unpack(read_fields(base .. ':eg:' .. group, unpack(GROUP))) }
  for index = 2, #GROUP + 1 do
    found[index] = found[index] or ''
  end
  local counted = {}
  for _, hour in ipairs(hours) do
    local packed = redis.call('HGET', base .. ':eh:' .. hour, group)
    if packed then
      counted[#counted + 1] = { tonumber(hour), unpack_numbers(packed) }
    end
  end
  found[#GROUP + 2] = counted
  spend(1 + #hours / 4)
  return found
end

local function hours_between(base, first, last)
  return redis.call('ZRANGE', base .. ':error_hours', text(first), '(' .. text(last), 'BYSCORE')
end
