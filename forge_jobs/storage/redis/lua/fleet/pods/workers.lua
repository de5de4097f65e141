-- no-writes
-- Workers whose start is known, of one pod or all: `limit` claims looked at from position `from`.
-- Answers how many claims there were, and per worker job, host, worker, kind, start, and whether a
-- cancel was asked for.
local function handle(base, request)
  local from, limit, wanted = unpack(request)
  local ids = redis.call('ZRANGE', base .. ':started', from, from + limit - 1)
  local workers = {}
  for _, id in ipairs(ids) do
    local host, worker, kind, started, cancel =
      unpack(read_fields(base .. ':j:' .. id, 'host', 'worker', 'kind', 'started', 'cancel'))
    started = whole(started)
    if host and started and (not wanted or host == wanted) then
      workers[#workers + 1] = { id, host, worker or '', kind or '', started, cancel and true or false }
    end
  end
  return { #ids, workers }
end
