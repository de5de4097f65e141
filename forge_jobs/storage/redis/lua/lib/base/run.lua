-- Ends every script: handle(base, request) for each base, all in one atomic step. With false for the
-- request the fleet's base just answers what queues there are. See base/queues.py.
--
-- A script that writes under several bases, all or nothing, also sets check(base, request). An answer of
-- check says why nothing may be written under any base. All bases without an answer of their own give that
-- answer then.
--
-- A key of another type stops the base of the key and no other. What a script says that it spends bounds
-- the step. The answer is a list then: the answers, the numbers of bases with such a key, and of those that
-- are left for another step.
local requests = cmsgpack.unpack(ARGV[2])
local answers, spoilt, left, refused_all = {}, {}, {}, nil
local MOST_SPENT = 600

local function answered(base, request)
  local answer
  if request then
    answer = handle(base, request)
  else
    answer = redis.call('SMEMBERS', base .. ':queues')
  end
  if at_end then
    at_end(base)
  end
  flush_writes()
  flush_owned(base)
  flush_counts(base)
  return answer
end

-- Returns the answer of `work`. false, and the base is noted, when `work` has met a key of another type.
local function apart(work, index, request)
  local base = KEYS[index]
  local is_done, answer = pcall(work, base, request)
  if is_done then
    return answer
  elseif not is_wrong_type(answer) then
    error(answer, 0)
  end
  spoilt[#spoilt + 1], woken[base] = index, nil
  -- Writes stand, so the indexes follow where they can. A job that is being stored has been listed before
  -- the write, or is not stored.
  if check then
    drop_writes()
  end
  flush_what_can_be()
  if at_end then
    pcall(at_end, base)
  end
  flush_owned(base)
  flush_counts(base)
  return false
end

for index, request in ipairs(check and requests or {}) do
  answers[index] = apart(check, index, request)
  refused_all = refused_all or answers[index]
end
local may_write = not refused_all and not spoilt[1]
for index, request in ipairs(requests) do
  if spent > MOST_SPENT then
    left[#left + 1] = index
  elseif may_write then
    answers[index] = apart(answered, index, request)
  end
  answers[index] = answers[index] or refused_all or false
end
flush_topics()
if spoilt[1] or left[1] then
  return { cmsgpack.pack(answers), cmsgpack.pack(spoilt), cmsgpack.pack(left) }
end
return cmsgpack.pack(answers)
