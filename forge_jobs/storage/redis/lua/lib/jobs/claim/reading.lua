-- Reads the due jobs of lines, page by page. Used with ready.lua.

-- A claim passes over so many expired jobs. The caller takes them away. Jobs behind them are left till
-- then.
local MOST_EXPIRED = 5000
local met = 0

-- Returns per due job of a page whether the time has run out, nil when no job's has.
local function expired_of(base, page, may_expire)
  if not may_expire or not page[1] or tonumber(page[2]) > now then
    return nil
  end
  local ids = {}
  for index = 1, #page, 2 do
    ids[#ids + 1] = tonumber(page[index + 1]) <= now and page[index] or nil
  end
  local found = redis.call('ZMSCORE', base .. ':expiring', unpack(ids))
  for index, expires in ipairs(found) do
    found[index] = expires and tonumber(expires) <= now
    met = found[index] and met + 1 or met
  end
  return found
end

-- Reads the next due jobs of a line, `size` and then twice as many. Returns false when there are none.
-- `ahead` is then when the next one is due, if that was read.
local function read_on(base, line, size, may_expire)
  local key, jobs = base .. ':ready:' .. line.name, {}
  size = math.max(size, line.read)
  while not line.is_read and #jobs == 0 and met < MOST_EXPIRED do
    -- By place, which takes half as long as by score.
    local page = redis.call('ZRANGE', key, line.read, line.read + size - 1, 'WITHSCORES')
    line.read, line.is_read = line.read + size, #page < 2 * size
    local expired = expired_of(base, page, may_expire)
    local number = 0
    for index = 1, #page, 2 do
      local run_at = tonumber(page[index + 1])
      if run_at > now then
        line.is_read, line.ahead = true, run_at
        break
      elseif not (expired and expired[(index + 1) / 2]) then
        number = number + 1
        jobs[number] = { id = page[index], run_at = run_at, line = line }
      end
    end
  end
  line.jobs, line.at = jobs, 1
  return jobs[1] ~= nil
end

-- Returns whether so many expired jobs were met that others may stand behind them.
local function is_stuck()
  return met >= MOST_EXPIRED
end
