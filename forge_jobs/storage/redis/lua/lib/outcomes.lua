-- What the end of a claim leaves on its job. Used with jobs.lua; see settling.lua.

local MOST_ERRORS = 32

local function append_error(base, id, error)
  local key = base .. ':err:' .. id
  redis.call('RPUSH', key, text(now) .. ' ' .. error)
  redis.call('LTRIM', key, -MOST_ERRORS, -1)
end

-- Replaces the result, also by none.
local function write_result(base, job, result)
  local key = base .. ':j:' .. job.id
  if not result then
    if redis.call('HDEL', key, 'result') == 1 then
      redis.call('ZREM', base .. ':results', job.id)
    end
    return
  end
  redis.call('HSET', key, 'result', result)
  if job.result_ttl then
    redis.call('ZADD', base .. ':results', now + job.result_ttl, job.id)
  end
end

local function write_counts(base, job, item, mode)
  local fields = {}
  local function add(name, by)
    if by ~= 0 then
      job[name] = job[name] + by
      fields[#fields + 1] = name
      fields[#fields + 1] = text(job[name])
    end
  end
  add('attempt', -item[6])
  add('snoozes', item[7])
  add('crashes', item[8])
  if mode ~= 'revive' then
    add('settled', job.token - job.settled)
  end
  if #fields > 0 then
    redis.call('HSET', base .. ':j:' .. job.id, unpack(fields))
  end
end
