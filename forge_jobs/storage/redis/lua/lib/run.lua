-- Ends every script: handle(base, request) for each base, all in one atomic step. With false for its
-- request the fleet's base just answers what queues there are; see fleet.py.
--
-- A script that writes under several bases, all or nothing, also sets check(base, request): its
-- answer, when it has one, says why nothing may be written under any of them, and is then the
-- answer of all that have none of their own.
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
local refusal
if check then
  for index, request in ipairs(requests) do
    answers[index] = check(KEYS[index], request)
    refusal = refusal or answers[index]
  end
end
if refusal then
  for index = 1, #requests do
    answers[index] = answers[index] or refusal
  end
else
  for index, request in ipairs(requests) do
    local base, answer = KEYS[index], nil
    if request then
      answer = handle(base, request)
    else
      answer = redis.call('SMEMBERS', base .. ':queues')
    end
    if answer == nil then
      answer = false
    end
    answers[index] = answer
    flush_writes()
    flush_owned(base)
    flush_counts(base)
  end
end
flush_topics()
return cmsgpack.pack(answers)
