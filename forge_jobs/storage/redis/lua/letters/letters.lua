-- no-writes
-- Answers letters that wait: { most, bytes at most, names to pass over, queues whose letters stay }. Per
-- letter the queue, the name, the fields in the order of read.py ('' for what is not set), and the errors.
local FIELDS = {
  'kind', 'payload', 'cause', 'attempt', 'priority', 'tags', 'schedule', 'doc', 'enqueued', 'died',
}
local PAGE = 100
local size = 0

local function set_of(listed)
  local found = {}
  for _, each in ipairs(listed) do
    found[each] = true
  end
  return found
end

local function read_letter(base, to, name)
  local values = read_fields(base .. ':letter:' .. name, unpack(FIELDS))
  local letter = { to, name }
  for index in ipairs(FIELDS) do
    letter[index + 2] = values[index] or ''
  end
  local packed = read_fields(base .. ':letter:' .. name, 'errors')[1]
  letter[#letter + 1] = packed and unpacked(packed, {}) or {}
  return letter, #letter[4] + #(packed or '')
end

local function handle(base, request)
  local most, bytes, passed, stays = unpack(request)
  local found = {}
  passed, stays = set_of(passed), set_of(stays)
  for _, to in ipairs(redis.call('ZRANGE', base .. ':letters', 0, -1)) do
    local at, names = 0, stays[to] and {} or nil
    repeat
      names = names or redis.call('ZRANGE', base .. ':letters:' .. to, at, at + PAGE - 1)
      local is_last = #names < PAGE
      for _, name in ipairs(names) do
        if #found < most and size < bytes and not passed[name] then
          local letter, length = read_letter(base, to, name)
          found[#found + 1], size = letter, size + length
        end
      end
      at, names = at + PAGE, nil
    until is_last or #found >= most or size >= bytes
  end
  spend(#found)
  return found
end
