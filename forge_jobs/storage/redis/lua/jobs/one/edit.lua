-- Writes fields of a job that waits. Answers false, and writes nothing, when a field is not as expected:
-- { name, value, false for a field that is not set }. written: fields and values in turn. is_anew: the
-- payload is another one.
-- uses: jobs lists events
local function is_as_expected(key, expected)
  for _, pair in ipairs(expected) do
    local name, value = unpack(pair)
    if redis.call('HGET', key, name) ~= value then
      return false
    end
  end
  return true
end

-- Takes the job out of what leads to it by content, or puts the job in.
local function place(base, job, command, list_command)
  for _, list in ipairs(shared_lists(base, job)) do
    redis.call(list_command, list, unpack(list_command == 'ZREM' and { job.id } or { 0, job.id }))
  end
  if job.status ~= 'blocked' and not job.hold then
    command(base, job)
  end
end

local function handle(base, request)
  local id, expected, written, dropped, detail, is_anew = unpack(request)
  local key = base .. ':j:' .. id
  if not is_as_expected(key, expected) then
    return false
  end
  local before = load(base, id)
  if before.hold == 'limit' or before.hold == 'struck' then
    -- The place of the job is another one, or strikes mean it no more. The next claim tells.
    leave_parked(base, before)
  elseif not before.hold then
    free_permit(base, before.permit)
  end
  place(base, before, remove_ready, 'ZREM')
  if before.expires then
    redis.call('ZREM', base .. ':expiring', id)
  end
  if #dropped > 0 then
    redis.call('HDEL', key, unpack(dropped))
  end
  redis.call('HSET', key, 'more', '1', unpack(written))
  if is_anew then
    redis.call('DEL', base .. ':ckpt:' .. id) -- Of the payload before.
  end
  local job = load(base, id)
  place(base, job, add_ready, 'ZADD')
  if job.expires then
    redis.call('ZADD', base .. ':expiring', job.expires, id)
  end
  append_event(base, now, 'edited', id, '', detail)
  if job.status ~= 'blocked' and not job.hold and job.run_at <= now then
    wake_queue(base)
  end
  return true
end
