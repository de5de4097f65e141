-- no-writes
-- The time, and at most `limit` claims without a beat for `stale_after`, the most silent first: beat, id,
-- token, kind, host, attempt, crashes, whether a start is recorded, whether a cancel was asked for, doc.
-- uses: jobs
local function handle(base, request)
  local stale_after, limit = unpack(request)
  local ids = redis.call(
    'ZRANGE', base .. ':claimed', '-inf', text(now - stale_after), 'BYSCORE', 'LIMIT', 0, limit
  )
  local found = {}
  for index, id in ipairs(ids) do
    local job = load(base, id)
    -- One without a record is named as nobody's: who revives it takes it off the list.
    found[index] = job and {
      job.beat, id, job.token, job.kind, job.host or '', job.attempt, job.crashes, job.started ~= nil,
      job.cancel ~= nil, redis.call('HGET', base .. ':j:' .. id, 'doc') or '',
    } or { 0, id, 0, '', '', 0, 0, false, false, '' }
  end
  return { now, found }
end
