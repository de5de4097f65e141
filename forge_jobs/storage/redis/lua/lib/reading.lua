-- Reads the due jobs of lines, page by page. Used with ready.lua.

-- So many expired jobs are passed over by a claim. Its caller takes them away; a line that begins with
-- more is left until then.
local MOST_EXPIRED = 5000
local met = 0

-- Per job of a page whether its time has run out; nil when no job's has.
local function expired_of(base, page, may_expire)
  if not may_expire or #page == 0 then
    return nil
  end
  local ids = {}
  for index = 1, #page, 2 do
    ids[#ids + 1] = page[index]
  end
  local found = redis.call('ZMSCORE', base .. ':expiring', unpack(ids))
  for index, expires in ipairs(found) do
    found[index] = expires and tonumber(expires) <= now
    met = found[index] and met + 1 or met
  end
  return found
end

-- Reads the next due jobs of a line, about `size`; false when there are none.
local function read_on(base, line, size, may_expire)
  local key, jobs = base .. ':ready:' .. line.name, {}
  size = may_expire and math.max(size, 200) or size
  while not line.is_read and #jobs == 0 and met < MOST_EXPIRED do
    local page = redis.call(
      'ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', line.read, size, 'WITHSCORES'
    )
    line.read, line.is_read = line.read + size, #page < 2 * size
    local expired = expired_of(base, page, may_expire)
    local number = #jobs
    for index = 1, #page, 2 do
      if not (expired and expired[(index + 1) / 2]) then
        number = number + 1
        jobs[number] = { id = page[index], run_at = tonumber(page[index + 1]), line = line }
      end
    end
  end
  line.jobs, line.at = jobs, 1
  return #jobs > 0
end

-- Whether so many expired jobs were met that others may stand behind them.
local function is_stuck()
  return met >= MOST_EXPIRED
end

local function comes_first(one, other)
  if one.run_at == other.run_at then
    return is_before(one.id, other.id)
  end
  return one.run_at < other.run_at
end

-- Puts a line among others where its next job belongs; the first of all is the last one here.
local function place(lines, line)
  local job, low, high = line.jobs[line.at], 1, #lines + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = lines[middle]
    if comes_first(job, other.jobs[other.at]) then
      low = middle + 1
    else
      high = middle
    end
  end
  table.insert(lines, low, line)
end
