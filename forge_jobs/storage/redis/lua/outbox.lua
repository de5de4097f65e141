-- no-writes
-- At most `limit` records: number and jobs.
local function handle(base, request)
  local found = {}
  for index, number in ipairs(redis.call('HKEYS', base .. ':outbox')) do
    if index > request[1] then
      break
    end
    local _, _, jobs = unpack(cmsgpack.unpack(redis.call('HGET', base .. ':outbox', number)))
    found[index] = { tonumber(number), jobs }
  end
  return found
end
