-- no-writes
-- Children still to be told, of the parents that ended first: { seq, when, parent, status, child,
-- its queue's tag and failure policy }.
local function add(base, news, seq, at, parent, status, most)
  local cursor = '0'
  repeat
    -- The sweep tells those whose names cannot be read.
    local read = read_record('HSCAN', base .. ':told:' .. seq, cursor, 'COUNT', most) or { '0', {} }
    local children = read[2]
    cursor = read[1]
    for index = 1, #children, 2 do
      if #news < most then
        news[#news + 1] = { seq, at, parent, status, children[index], children[index + 1] }
      end
    end
  until cursor == '0' or #news == most
end

local function handle(base, most)
  local news = {}
  local records = redis.call('ZRANGE', base .. ':handovers', 0, most - 1, 'WITHSCORES')
  for index = 1, #records, 2 do
    local seq, parent, status = string.match(records[index], '^(%d+) (%S+) (%S+)$')
    if #news < most then
      add(base, news, seq, tonumber(records[index + 1]), parent, status, most)
    end
  end
  return news
end
