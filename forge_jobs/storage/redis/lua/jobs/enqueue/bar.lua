-- Jobs (id, mark) are about to be stored in another queue, or to lose their locators. Answers the
-- fingerprints of those that are stored here, '' for none; the others may not be stored here by who
-- wrote that mark, or one before. In an hour nobody is still under way; else the sweep mends it.
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
