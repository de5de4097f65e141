-- allow-oom
-- Removes a limit by key. Answers whether there was one.
-- uses: shares
local function handle(base, request)
  local is_gone = redis.call('HDEL', base .. ':at_most', request[1]) == 1
  note_shares(base)
  return is_gone
end
