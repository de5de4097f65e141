-- Finish a batch under its tokens, then claim the next one.
-- KEYS: waiting ids, finished ids
-- ARGV: how many to claim, how many have ended, then id and token of each of these
-- Returns id, token and payload of each claimed job.
local at = 3
for _ = 1, tonumber(ARGV[2]) do
  local key = 'bare:' .. ARGV[at]
  local held = redis.call('HMGET', key, 'status', 'token')
  if held[1] == 'running' and held[2] == ARGV[at + 1] then
    redis.call('HSET', key, 'status', 'done')
    redis.call('RPUSH', KEYS[2], ARGV[at])
  end
  at = at + 2
end

local claimed = {}
for _, id in ipairs(redis.call('LPOP', KEYS[1], ARGV[1]) or {}) do
  local key = 'bare:' .. id
  local token = redis.call('HINCRBY', key, 'token', 1)
  redis.call('HSET', key, 'status', 'running')
  claimed[#claimed + 1] = id
  claimed[#claimed + 1] = token
  claimed[#claimed + 1] = redis.call('HGET', key, 'payload')
end
return claimed
