-- allow-oom
-- Declares limits by key (code), or sets them (an operator, whose numbers code does not change any more):
-- name and number in turn, a number as '5', or '5/1' with a share. Answers the names of those that are others
-- now. Hash 'at_most': name -> number, with ' set' behind one that an operator has set.
-- uses: queues shares
local function handle(base, request)
  local defaults, limits, by_operator = unpack(request)
  local key, changed = base .. ':at_most', {}
  ensure_queue(base, defaults)
  for index = 1, #limits, 2 do
    local name, number = limits[index], limits[index + 1] .. (by_operator and ' set' or '')
    local stored = redis.call('HGET', key, name)
    local is_kept = stored and string.find(stored, ' set$') and not by_operator
    if stored ~= number and not is_kept then
      redis.call('HSET', key, name, number)
      changed[#changed + 1] = name
    end
  end
  note_shares(base)
  return changed
end
