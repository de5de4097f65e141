-- no-writes
-- Per id { kind, status, cause, attempt, token, time of the progress, progress }, false for a job that is
-- not there.
-- uses: telling
local PROGRESS = { 'number', 'number', 'string' }

local function handle(base, ids)
  local states = {}
  for index, id in ipairs(ids) do
    local key = base .. ':j:' .. id
    local values = redis.pcall('HMGET', key, 'kind', 'status', 'cause', 'attempt', 'token')
    -- A key of another type is a job of which nothing can be read.
    local is_there = values.err or values[2]
    local stored = read_record('HGET', base .. ':prog:' .. id, '')
    local progress = stored and unpacked(stored, PROGRESS)
    if not progress or progress[1] ~= whole(values[5]) then
      progress = { 0, 0, '' }
    end
    states[index] = is_there and {
      values[1] or '', values[2] or '', values[3] or '', values[4] or '', values[5] or '',
      progress[2], progress[3],
    }
    spend(2)
  end
  return states
end
