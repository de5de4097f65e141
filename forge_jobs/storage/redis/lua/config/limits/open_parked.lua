-- allow-oom
-- Lets jobs that a limit held back be ready, after the limit has changed: { name, permit to go on from, how
-- many jobs of that one are ready since }. Answers where to go on, '' at the end.
local PERMITS_AT_ONCE = 100

local function handle(base, request)
  local name, from, before = unpack(request)
  local first = '[' .. (from == '' and name .. '\n' or from)
  local permits = redis.call(
    'ZRANGE', base .. ':parks', first, '(' .. name .. '\11', 'BYLEX', 'LIMIT', 0, PERMITS_AT_ONCE + 1
  )
  local total, next_one, done = 0, '', 0
  for index, permit in ipairs(permits) do
    if total >= MOST_OPENED or index > PERMITS_AT_ONCE then
      next_one = permit
      break
    end
    redis.call('ZREM', base .. ':turns', permit) -- A limit with a share makes the turn anew.
    done = permit == from and before or 0
    local number, is_more = open_permit(base, permit, room_of(base, permit) - done)
    total, done = total + number, is_more and done + number or 0
    if is_more then
      next_one = permit
      break
    end
  end
  open_freed(base)
  return { next_one, done }
end
