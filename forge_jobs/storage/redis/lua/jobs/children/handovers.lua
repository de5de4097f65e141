-- no-writes
-- Answers the handovers that wait, of the parents that ended first: { seq, when, parent, status, child, tag
-- of the child's queue and failure policy }.
local function add(base, found, seq, at, parent, status, most)
  local cursor = '0'
  repeat
    -- The sweep tells those whose names cannot be read.
    local read = read_record('HSCAN', base .. ':told:' .. seq, cursor, 'COUNT', most) or { '0', {} }
    local children = read[2]
    cursor = read[1]
    for index = 1, #children, 2 do
      if #found < most then
        found[#found + 1] = { seq, at, parent, status, children[index], children[index + 1] }
      end
    end
  until cursor == '0' or #found == most
end

local function handle(base, most)
  local found = {}
  local records = redis.call('ZRANGE', base .. ':handovers', 0, most - 1, 'WITHSCORES')
  for index = 1, #records, 2 do
    local seq, parent, status = string.match(records[index], '^(%d+) (%S+) (%S+)$')
    -- Dead where an edit by hand has spoilt the word.
    if status ~= 'done' and status ~= 'cancelled' then
      status = 'dead'
    end
    if seq and #found < most then
      add(base, found, seq, tonumber(records[index + 1]), parent, status, most)
    end
  end
  return found
end
