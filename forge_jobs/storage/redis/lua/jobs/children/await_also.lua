-- Lets a blocked job wait for further parents: parents and edges in turn. Those that the job has stay as
-- they are. Answers the status of the job, '' when there is no such job. Of a job that is not blocked
-- nothing changes.
-- uses: jobs
local function handle(base, request)
  local id, flat = unpack(request)
  local key, new = base .. ':j:' .. id, 0
  local status = redis.call('HGET', key, 'status')
  if status ~= 'blocked' then
    return status or ''
  end
  for index = 1, #flat, 2 do
    new = new + redis.call('HSETNX', base .. ':waits:' .. id, flat[index], flat[index + 1])
  end
  redis.call('HINCRBY', key, 'waits', new)
  return status
end
