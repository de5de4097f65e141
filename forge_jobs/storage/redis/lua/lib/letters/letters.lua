-- Letters of dead jobs: hash 'letter:<id> <token>', with packed errors among the fields. Zset
-- 'letters:<queue>': the letters for a queue, by when they were written. Zset 'letters': these queues, by
-- when the first letter was written.

local COPIED = { 'payload', 'priority', 'tags', 'schedule', 'doc', 'enqueued' }

-- Notes the end of a claim, before the payload goes. A letter leaves none.
local function write_letter(base, job, to, cause)
  local key = base .. ':j:' .. job.id
  local kind = read_fields(key, 'kind')[1] or ''
  if kind == 'forge.dead_letter' then
    return
  end
  local errors = read_record('LRANGE', base .. ':err:' .. job.id, 0, -1) or {}
  local fields = {
    'kind', kind, 'cause', cause, 'attempt', job.attempt, 'died', now_text,
    'errors', cmsgpack.pack(errors),
  }
  for index, value in pairs(read_fields(key, unpack(COPIED))) do
    if value then
      fields[#fields + 1], fields[#fields + 2] = COPIED[index], value
    end
  end
  local name = job.id .. ' ' .. text(job.token)
  redis.call('HSET', base .. ':letter:' .. name, unpack(fields))
  redis.call('ZADD', base .. ':letters:' .. to, now, name)
  redis.call('ZADD', base .. ':letters', 'NX', now, to)
  wake('letters')
end
