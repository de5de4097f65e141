-- no-writes
-- Per id { its hash, its errors, the parents it waits for }, false for a job that is not there.
local function handle(base, ids)
  local jobs = {}
  for index, id in ipairs(ids) do
    local fields = redis.call('HGETALL', base .. ':j:' .. id)
    jobs[index] = #fields > 0 and {
      fields, redis.call('LRANGE', base .. ':err:' .. id, 0, -1),
      redis.call('HKEYS', base .. ':waits:' .. id),
    }
  end
  return jobs
end
