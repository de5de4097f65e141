-- The texts of jobs that a caller has looked into, to see later whether they are the same.

-- Returns payload and newest error. false: there is no such job.
local function texts_of(base, id)
  local payload = read_fields(base .. ':j:' .. id, 'payload')[1]
  local error = read_record('LINDEX', base .. ':err:' .. id, -1)
  return payload or false, error or ''
end

local function hash_of(payload, error)
  return redis.sha1hex(payload .. ' ' .. error)
end

-- Returns whether the job has other texts than those that a caller has seen. seen: hash by id, or false.
local function has_changed(base, id, seen)
  if not seen then
    return false
  end
  local payload, error = texts_of(base, id)
  return not payload or hash_of(payload, error) ~= seen[id]
end
