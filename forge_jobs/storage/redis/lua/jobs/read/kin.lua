-- no-writes
-- Answers of a job whether there is one, the parents and edges in turn, and the listed children with the
-- tags of their queues: `most` of them behind the first `start`.
local function handle(base, request)
  local id, start, most = unpack(request)
  return {
    redis.call('EXISTS', base .. ':j:' .. id) == 1,
    read_record('HGETALL', base .. ':waits:' .. id) or {},
    read_record('ZRANGE', base .. ':kin:' .. id, start, start + most - 1) or {},
  }
end
