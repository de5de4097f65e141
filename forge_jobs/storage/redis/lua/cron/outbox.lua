-- no-writes
-- At most `limit` records: number and jobs.
local function handle(base, request)
  local found, limit = {}, request[1]
  for index, number in ipairs(redis.call('HKEYS', base .. ':outbox')) do
    if index > limit then
      break
    end
    local is_read, record = pcall(cmsgpack.unpack, redis.call('HGET', base .. ':outbox', number))
    local jobs = is_read and type(record) == 'table' and record[3]
    found[index] = { whole(number, 0), type(jobs) == 'string' and jobs or '' }
  end
  return found
end
