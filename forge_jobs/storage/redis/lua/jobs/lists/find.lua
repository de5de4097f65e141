-- no-writes
-- Finds matching jobs beyond one id, ascending or descending, by a walk over the narrowest lists
-- that hold them all. Looks at a bounded number. Answers { ids, where the walk stopped }, '' at the
-- end.
-- uses: places terms filters listing
local function from(key, beyond, is_descending, most)
  local edge = beyond ~= '' and '(' .. beyond
  if is_descending then
    return redis.call('ZRANGE', key, edge or '+', '-', 'BYLEX', 'REV', 'LIMIT', 0, most)
  end
  return redis.call('ZRANGE', key, edge or '-', '+', 'BYLEX', 'LIMIT', 0, most)
end

local function is_passed(id, beyond, is_descending)
  return beyond ~= '' and (id == beyond or is_before(beyond, id) == is_descending)
end

-- The next ids of all the lists together, more than `most` when there are more.
local function following(base, keys, beyond, is_descending, most)
  local ids, seen = {}, {}
  for _, key in ipairs(keys) do
    -- Claims are not many, and stand by their last beat.
    local are_claims = key == base .. ':claimed'
    local found = are_claims and redis.call('ZRANGE', key, 0, -1)
      or from(key, beyond, is_descending, most + 1)
    for _, id in ipairs(found) do
      if not seen[id] and not (are_claims and is_passed(id, beyond, is_descending)) then
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
  end
  if #keys > 1 or keys[1] == base .. ':claimed' then
    table.sort(ids, is_descending and function(a, b) return is_before(b, a) end or is_before)
  end
  return ids
end

local function handle(base, request)
  local meant, beyond, wanted, visited, is_descending = unpack(request)
  local filter = read_filter(meant)
  local ids = following(base, narrowest(base, filter), beyond, is_descending, visited)
  local found, last = {}, 0
  while last < visited and last < #ids and #found < wanted do
    last = last + 1
    if matches(base, filter, ids[last]) then
      found[#found + 1] = ids[last]
    end
  end
  spend(10 + last)
  return { found, last < #ids and ids[last] or '' }
end
