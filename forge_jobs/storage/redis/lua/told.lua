-- allow-oom
-- Forgets children that have been told: { seq, parent, its status, child }.
local function handle(base, told)
  for _, each in ipairs(told) do
    local seq, parent, status, child = unpack(each)
    local key = base .. ':told:' .. seq
    redis.call('HDEL', key, child)
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':handovers', seq .. ' ' .. parent .. ' ' .. status)
    end
  end
end
