-- allow-oom
-- Forgets pods. The last step, once they have no slot. Answers per (host, epoch) whether the pod was there.
-- With `dead_for` a pod goes only when the lease ran out at least that long ago.
-- uses: pods
local function is_due(base, host, dead_for)
  return not dead_for
    or whole(read_record('HGET', pod_key(base, host), 'lease_until'), 0) <= now - dead_for
end

local function handle(base, request)
  local dead_for, pods = unpack(request)
  local answers = {}
  for index, pod in ipairs(pods) do
    local host, epoch = unpack(pod)
    local goes = is_of(base, host, epoch) and is_due(base, host, dead_for)
    if goes then
      redis.call('DEL', pod_key(base, host))
      redis.call('ZREM', base .. ':pods', host)
      wake('fleet')
    end
    answers[index] = goes
  end
  return answers
end
