-- no-writes
-- The jobs of a permit: { permit, how many of each }. Answers those in progress and those on hold.
local function handle(base, request)
  local permit, limit = unpack(request)
  spend(limit)
  local waiting = {}
  for index, place in ipairs(read_record('ZRANGE', base .. ':parked:' .. permit, 0, limit - 1) or {}) do
    waiting[index] = string.sub(place, 27)
  end
  return { read_record('ZRANGE', base .. ':using:' .. permit, 0, limit - 1) or {}, waiting }
end
