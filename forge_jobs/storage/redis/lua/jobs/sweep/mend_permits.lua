-- allow-oom
-- Takes jobs off permits that are not in progress with them, and lets jobs on hold be ready for whose permit
-- there is room: of permits behind `after`. Answers the last of them, '' at the end.
local PERMITS_AT_ONCE, MOST_USED = 100, 500

local function drop_strays(base, permit)
  local using = base .. ':using:' .. permit
  for _, id in ipairs(read_record('ZRANGE', using, 0, MOST_USED - 1) or {}) do
    local status, of = unpack(read_fields(base .. ':j:' .. id, 'status', 'permit'))
    if status ~= 'in_progress' or of ~= permit then
      redis.call('ZREM', using, id)
    end
  end
end

local function handle(base, after)
  spend(500)
  local permits = redis.call(
    'ZRANGE', base .. ':parks', after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, PERMITS_AT_ONCE
  )
  for _, permit in ipairs(permits) do
    drop_strays(base, permit)
    open_permit(base, permit, room_of(base, permit))
    if redis.call('EXISTS', base .. ':parked:' .. permit) == 0 then
      redis.call('ZREM', base .. ':parks', permit)
    end
  end
  open_freed(base)
  return permits[PERMITS_AT_ONCE] or ''
end
