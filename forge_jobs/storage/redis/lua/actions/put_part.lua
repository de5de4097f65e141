-- Begins the part of an action in this queue, once.
local function handle(base, request)
  local id, seconds = unpack(request)
  local key = base .. ':act:' .. id
  if redis.call('HSETNX', key, 'state', 'running') == 1 then
    redis.call('HSET', key, 'cursor', '')
    redis.call('PEXPIRE', key, seconds * 1000)
  end
  return true
end
