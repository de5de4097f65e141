-- no-writes
-- Answers per job whether there is one, the parents and edges in turn, and the listed children with the
-- tags of their queues: `most` of them behind the first `start`. The parents stand on the first page.
local function handle(base, request)
  local ids, start, most = unpack(request)
  local answers = {}
  for index, id in ipairs(ids) do
    local waits = start == 0 and read_record('HGETALL', base .. ':waits:' .. id) or {}
    local children = read_record('ZRANGE', base .. ':kin:' .. id, start, start + most - 1) or {}
    answers[index] = { redis.call('EXISTS', base .. ':j:' .. id) == 1, waits, children }
    spend(3 + (#waits + #children) / 10)
  end
  return answers
end
