-- no-writes
-- The permits of a limit with jobs on hold: { name, where to begin, how many }. Of each { permit, jobs in
-- progress, jobs on hold }.
local function handle(base, request)
  local name, begin, limit = unpack(request)
  local permits = redis.call(
    'ZRANGE', base .. ':parks', begin, '(' .. name .. '\11', 'BYLEX', 'LIMIT', 0, limit
  )
  spend(2 * #permits)
  local found = {}
  for index, permit in ipairs(permits) do
    found[index] = {
      permit,
      read_record('ZCARD', base .. ':using:' .. permit) or 0,
      read_record('ZCARD', base .. ':parked:' .. permit) or 0,
    }
  end
  return found
end
