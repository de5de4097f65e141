-- Ends the part of an action in this queue, if it runs.
local function handle(base, id)
  local key = base .. ':act:' .. id
  if redis.call('HGET', key, 'state') == 'running' then
    redis.call('HSET', key, 'state', 'aborted')
  end
  return true
end
