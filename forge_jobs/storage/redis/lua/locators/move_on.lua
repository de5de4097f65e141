-- allow-oom
-- Goes on with an old hash of locators: takes those away that are where they belong, and notes how far
-- the move is. { ids to take away, whether all were looked at, whether all were there before, how long
-- they must have been (us) }. Answers what stands under the key.
local function handle(base, request)
  local gone, is_round, were_there, must_stand = unpack(request)
  local ids, from = base .. ':ids', base .. ':from'
  local state = redis.call('GET', ids) or 'moving'
  local since = tonumber(string.match(state, '^moving since (%d+)$'))
  local may = since and since + must_stand <= now
  if may then
    call_many('HDEL', from, gone)
  end
  if redis.call('EXISTS', from) == 0 then
    state = string.sub(state, 1, 4) == 'all ' and state or 'moved'
  elseif is_round and not (may and were_there) then
    state = 'moving since ' .. text(now)
  end
  redis.call('SET', ids, state)
  return state
end
