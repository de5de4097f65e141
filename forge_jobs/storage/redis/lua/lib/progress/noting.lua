-- Stores progress and lines of runs. Used with telling.

-- The claim holds the job, or has ended the last run of the job.
local function is_last_claim(base, id, token, host)
  local v = read_fields(base .. ':j:' .. id, 'status', 'token', 'settled', 'host')
  return whole(v[2]) == token and v[4] == host and (v[1] == 'in_progress' or whole(v[3]) == token)
end

-- Makes room for one more attempt.
local function drop_attempts(base, id, most)
  local attempts = attempts_of(base, id)
  for index = 1, #attempts + 1 - most do
    local attempt = attempts[index][1]
    redis.call('HDEL', base .. ':prog:' .. id, text(attempt))
    redis.call('DEL', log_key(base, id, attempt))
  end
end

-- Drops the oldest lines of an attempt that are too large together.
local function drop_bytes(key, bytes)
  while true do
    local lines = redis.call('LRANGE', key, 0, 49)
    local dropped = 0
    for _, packed in ipairs(lines) do
      local line = unpacked(packed, LINE)
      -- A line that cannot be read goes too.
      if line and line[6] >= bytes then
        break
      end
      dropped = dropped + 1
    end
    redis.call('LTRIM', key, dropped, -1)
    if dropped < 50 then
      return
    end
  end
end

-- Adds the lines that are not stored yet. Returns the new head of the attempt.
local function add_lines(key, token, head, lines, most_lines, most_bytes)
  local added, seq, number, bytes = {}, head[2], head[3], head[4]
  local first = number - seq
  for _, line in ipairs(lines) do
    local nth, at, level, words, size = unpack(line)
    if nth > seq then
      seq, number = nth, first + nth
      added[#added + 1] = cmsgpack.pack({ number, at, level, words, token, bytes })
      bytes = bytes + size
    end
  end
  call_many('RPUSH', key, added)
  if added[1] then
    redis.call('LTRIM', key, -most_lines, -1)
    if bytes > most_bytes then
      drop_bytes(key, bytes - most_bytes)
    end
  end
  return { token, seq, number, bytes }
end
