-- no-writes
-- Answers one group as read_group gives it, false for none.
-- uses: failures
local function handle(base, request)
  local group, first_hour, ends = unpack(request)
  if redis.call('EXISTS', base .. ':eg:' .. group) == 0 then
    return false
  end
  return read_group(base, group, hours_between(base, first_hour, ends))
end
