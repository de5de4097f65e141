-- allow-oom
-- Stores a pod's descriptions of kinds, and forgets those that no pod has made for long. Hash 'kinds': kind ->
-- the time, a blank, and the text. documents: kind and text in turn.
local function handle(base, request)
  local documents, kept = unpack(request)
  local key = base .. ':kinds'
  local before = redis.call('HGETALL', key)
  for index = 1, #before, 2 do
    if whole(string.match(before[index + 1], '^%d+'), 0) <= now - kept then
      redis.call('HDEL', key, before[index])
    end
  end
  for index = 1, #documents, 2 do
    redis.call('HSET', key, documents[index], now_text .. ' ' .. documents[index + 1])
  end
  return true
end
