-- allow-oom
-- Answers a request, once. False: there is no such request to this registration.
-- uses: pods requests
local function handle(base, request)
  local id, host, epoch, answer, done, kept = unpack(request)
  local fields = read_request(base, id, kept)
  if not fields or fields[1] ~= host or fields[2] ~= epoch then
    return false
  elseif fields[8] ~= '' then
    return true
  end
  redis.call(
    'HSET', request_key(base, id), 'answered', now_text, 'done', done and '1' or '', 'answer', answer
  )
  if is_of(base, host, epoch) then
    local waits = 0
    for _, other in ipairs(requests_of(base, host)) do
      local open = read_request(base, other, kept)
      waits = math.max(waits, open and is_open(open, epoch) and whole(open[6], 0) or 0)
    end
    redis.call('HSET', pod_key(base, host), 'asked', text(waits))
  end
  return true
end
