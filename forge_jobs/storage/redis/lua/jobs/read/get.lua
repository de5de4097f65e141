-- no-writes
-- Answers per id { the hash, the errors, parents that the job waits for and their states in turn }, false
-- for a job that is not there.
-- uses: jobs edges
local ANOTHER = 'of another type'

local function handle(base, ids)
  local jobs = {}
  for index, id in ipairs(ids) do
    local key = base .. ':j:' .. id
    local fields = redis.pcall('HGETALL', key)
    -- A key of another type is a job of which nothing can be read.
    local is_there = fields.err or #fields > 0
    fields = fields.err and {} or fields
    local is_blocked = #fields > 0 and redis.call('HGET', key, 'status') == 'blocked'
    if is_blocked and not read_record('HLEN', base .. ':waits:' .. id) then
      fields[#fields + 1], fields[#fields + 2] = 'waits', ANOTHER
    end
    jobs[index] = is_there and {
      fields, read_record('LRANGE', base .. ':err:' .. id, 0, -1) or { ANOTHER },
      is_blocked and unsettled(base, id) or {},
    }
  end
  return jobs
end
