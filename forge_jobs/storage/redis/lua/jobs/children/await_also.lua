-- Lets a blocked job wait for further parents: parents and edges in turn. Those that the job has stay as
-- they are. An edge to a parent of the job's sequence is of the sequence too. Answers the status of the job,
-- '' when there is no such job. Of a job that is not blocked nothing changes.
-- uses: jobs
local function handle(base, request)
  local id, flat = unpack(request)
  local key, new = base .. ':j:' .. id, 0
  local status, sequence = unpack(redis.call('HMGET', key, 'status', 'sequence'))
  if status ~= 'blocked' then
    return status or ''
  end
  for index = 1, #flat, 2 do
    local parent, edge = flat[index], flat[index + 1]
    local of = sequence and redis.call('HGET', base .. ':j:' .. parent, 'sequence') or ''
    if sequence and string.match(of, '^%S+ (.*)$') == string.match(sequence, '^%S+ (.*)$') then
      edge = string.gsub(edge, '^(%S+ %S+)', '%1_in_line')
    end
    new = new + redis.call('HSETNX', base .. ':waits:' .. id, parent, edge)
  end
  redis.call('HINCRBY', key, 'waits', new)
  return status
end
