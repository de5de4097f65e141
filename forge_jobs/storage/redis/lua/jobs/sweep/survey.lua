-- no-writes
-- Answers some jobs, for a sweep: { blocked jobs after this id, those of the status with this number after
-- this id, how many of each at most, further blocked jobs }. Answers { id, parents and edges in turn } of
-- each blocked job and the last of them, '' at the end. Then ids, the number of a status and the id to go
-- on from, and whether any job waits for a limit.
-- uses: jobs

-- Names and edges in turn: no further job is read beyond.
local MOST_READ = 20000

local STATUSES = { 'blocked', 'pending', 'failed', 'dead', 'cancelled', 'done' }

local function after(base, status, id, limit)
  return redis.call(
    'ZRANGE', base .. ':s:' .. status, id == '' and '-' or '(' .. id, '+', 'BYLEX', 'LIMIT', 0, limit
  )
end

local function handle(base, request)
  local blocked_after, number, id_after, limit, named = unpack(request)
  local listed = after(base, 'blocked', blocked_after, limit)
  local last, found, read = #listed == limit and listed[#listed] or '', {}, 0
  for _, ids in ipairs({ named, listed }) do
    for _, id in ipairs(ids) do
      local flat = redis.call('HGET', base .. ':j:' .. id, 'status') == 'blocked'
        and (read_record('HGETALL', base .. ':waits:' .. id) or {})
      found[#found + 1] = flat and { id, flat } or nil
      read = read + (ids == listed and flat and #flat or 0)
      if read > MOST_READ then
        last = id -- The next call goes on from here.
        break
      end
    end
  end
  local ids, parks = {}, redis.call('EXISTS', base .. ':parks') == 1
  for _ = 1, #STATUSES do
    for _, id in ipairs(after(base, STATUSES[number], id_after, limit - #ids)) do
      ids[#ids + 1] = id
    end
    if #ids == limit then
      return { found, last, ids, number, ids[limit], parks }
    end
    number, id_after = number % #STATUSES + 1, ''
  end
  return { found, last, ids, number, '', parks }
end
