-- no-writes
-- Answers the first records of a kind in a range, { at, record } each, the record false where the kind has
-- none: of minutes, or of hours.
-- uses: queues histograms series
local function handle(base, request)
  local kind, are_hours, first, last, most = unpack(request)
  local _, prefix, list = unpack(SERIES[are_hours and 2 or 1])
  local listed = redis.call(
    'ZRANGE', base .. list, text(first), text(last), 'BYSCORE', 'LIMIT', 0, most
  )
  spend(1 + #listed)
  local found = {}
  for index, at in ipairs(listed) do
    local packed = redis.call('HGET', base .. prefix .. at, kind)
    found[index] = { tonumber(at), packed and unpack_record(packed) }
  end
  return found
end
