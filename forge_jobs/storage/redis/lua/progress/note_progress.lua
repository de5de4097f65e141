-- Stores progress and lines of runs: { id, token, pod, attempt, progress or '', lines } each, a line being
-- { count in the run, at, level, text, bytes }. Answers per item false when the claim is not the job's last
-- one.
-- uses: telling noting
local function store(base, note, most)
  local most_lines, most_bytes, most_attempts = unpack(most)
  local id, token, host, attempt, progress, lines = unpack(note)
  local key, log = base .. ':prog:' .. id, log_key(base, id, attempt)
  -- Keys of another type of one job keep no other job from storing.
  local is_there = read_record('HLEN', key) and read_record('LRANGE', log, 0, 0)
  if not is_there or not is_last_claim(base, id, token, host) then
    return false
  end
  local stored = redis.call('HGET', key, text(attempt))
  if not stored then
    drop_attempts(base, id, most_attempts)
  end
  local head = stored and unpacked(stored, HEAD) or { 0, 0, 0, 0 }
  if head[1] ~= token then
    head[2] = 0
  end
  head = add_lines(log, token, head, lines, most_lines, most_bytes)
  redis.call('HSET', key, text(attempt), cmsgpack.pack(head))
  if progress ~= '' then
    redis.call('HSET', key, '', cmsgpack.pack({ token, now, progress }))
  end
  return true
end

local function handle(base, request)
  local most, notes = unpack(request)
  local answers = {}
  for index, note in ipairs(notes) do
    answers[index] = store(base, note, most)
    spend(8)
  end
  return answers
end
