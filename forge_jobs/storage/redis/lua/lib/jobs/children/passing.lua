-- Jobs that are passed, as those that ended while waiting. Used with edges.

-- Returns the first jobs from these on that have yet to end, by way of those that ended while waiting. key: by
-- way of jobs of other sequences too.
local function active(base, ahead, next_of, key)
  local seen, found = {}, {}
  while ahead[1] do
    local id = table.remove(ahead)
    local status, sequence = unpack(redis.call('HMGET', base .. ':j:' .. id, 'status', 'sequence'))
    local is_passed = ENDED[status] or key and key ~= string.match(sequence or '', '^%S+ (.*)$')
    if not seen[id] and is_passed then
      for _, each in ipairs(next_of(base, id)) do
        ahead[#ahead + 1] = each
      end
    elseif not seen[id] and status then
      found[#found + 1] = id
    end
    seen[id] = true
  end
  return found
end
