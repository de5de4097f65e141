-- Jobs that are passed, as those that ended while waiting. Used with edges.

-- Returns whether a walk passes the job, and whether the job is stored. key: jobs of other sequences are passed too.
-- The third value says that the job is one of these.
local function passes(base, id, key)
  local status, sequence = unpack(redis.call('HMGET', base .. ':j:' .. id, 'status', 'sequence'))
  local is_other = key and key ~= string.match(sequence or '', '^%S+ (.*)$')
  local is_passed = ENDED[status] or is_other
  return is_passed, status, is_other
end

-- Returns the first jobs from these on that have yet to end, by way of those that ended while waiting. key: by
-- way of jobs of other sequences too.
local function active(base, ahead, next_of, key)
  local seen, found = {}, {}
  while ahead[1] do
    local id = table.remove(ahead)
    local is_passed, status = passes(base, id, key)
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
