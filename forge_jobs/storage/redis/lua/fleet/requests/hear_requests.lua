-- allow-oom
-- Requests that wait for an answer of this registration, oldest first. Notes when each was first heard.
-- uses: pods requests
local function handle(base, request)
  local host, epoch, kept = unpack(request)
  local found = {}
  for _, id in ipairs(requests_of(base, host)) do
    local fields = read_request(base, id, kept)
    if fields and is_open(fields, epoch) and whole(fields[5], 0) <= now then
      redis.call('HSETNX', request_key(base, id), 'heard', now_text)
      found[#found + 1] = read_request(base, id, kept)
    end
  end
  return { now, found }
end
