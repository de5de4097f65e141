-- uses: edges
local ANOTHER = 'of another type'

-- Returns hash and errors of a job, and whether the job is blocked. False where there is no such job.
local function read_whole(base, id)
  local key = base .. ':j:' .. id
  local fields = redis.pcall('HGETALL', key)
  -- A key of another type is a job of which nothing can be read.
  if not fields.err and #fields == 0 then
    return false
  end
  fields = fields.err and {} or fields
  local is_blocked = #fields > 0 and redis.call('HGET', key, 'status') == 'blocked'
  if is_blocked and not read_record('HLEN', base .. ':waits:' .. id) then
    fields[#fields + 1], fields[#fields + 2] = 'waits', ANOTHER
  end
  return fields, read_record('LRANGE', base .. ':err:' .. id, 0, -1) or { ANOTHER }, is_blocked
end
