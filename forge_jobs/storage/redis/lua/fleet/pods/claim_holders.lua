-- no-writes
-- Answers the pods of the list that hold a claim here.
local function handle(base, hosts)
  local found = {}
  for _, host in ipairs(hosts) do
    if redis.call('HEXISTS', base .. ':owners', host) == 1 then
      found[#found + 1] = host
    end
  end
  return found
end
