-- no-writes
-- Answers the time, and claims without a beat for `stale_after`, the most silent first, from the place
-- `from` on: beat, id, token, kind, host, attempt, crashes, whether a start is recorded, whether a cancel
-- was asked for, doc. Then whether there may be more of the `limit`, since a step reads `at_once` of all
-- queues.
local FIELDS =
  { 'beat', 'token', 'kind', 'host', 'attempt', 'crashes', 'started', 'cancel', 'doc', 'status' }
local read = 0

local function handle(base, request)
  local stale_after, limit, from, at_once = unpack(request)
  local number = math.min(limit, at_once - read)
  if number < 1 then
    return { now, {}, limit > 0 }
  end
  local ids = redis.call(
    'ZRANGE', base .. ':claimed', '-inf', text(now - stale_after), 'BYSCORE', 'LIMIT', from, number
  )
  read = read + #ids
  local found = {}
  for index, id in ipairs(ids) do
    local beat, token, kind, host, attempt, crashes, started, cancel, doc, status =
      unpack(read_fields(base .. ':j:' .. id, unpack(FIELDS)))
    -- A claim without a record names no pod. The reaper takes such a claim off the list.
    found[index] = status and {
      whole(beat, 0), id, whole(token, 0), kind or '', host or '', whole(attempt, 0),
      whole(crashes, 0), whole(started) ~= nil, cancel and true or false, doc or '',
    } or { 0, id, 0, '', '', 0, 0, false, false, '' }
  end
  return { now, found, #ids == number and number < limit }
end
