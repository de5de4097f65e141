-- Bars jobs (id, mark) that are about to be stored in another queue, or to lose their locators. Answers the
-- fingerprints of jobs that are stored here, '' for none. The others may not be stored here by a caller
-- that wrote that mark, or one before. After an hour no such call is under way. Otherwise the sweep mends
-- the job.
local UNDER_WAY = 3600 * 1000

local function handle(base, jobs)
  local stored = {}
  for _, job in ipairs(jobs) do
    local id, mark = unpack(job)
    local kind, fingerprint =
      unpack(redis.call('HMGET', base .. ':j:' .. id, 'kind', 'fingerprint'))
    if kind then
      stored[#stored + 1] = { id, fingerprint or '' }
    else
      redis.call('ZADD', base .. ':barred', 'GT', text(mark), id)
      redis.call('PEXPIRE', base .. ':barred', UNDER_WAY)
    end
  end
  return stored
end
