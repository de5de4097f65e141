-- Reads the due jobs of lines, page by page. Used with ready.lua.

-- So many expired jobs a claim passes over. Its caller takes them away; what is behind is left till then.
local MOST_EXPIRED = 5000
local met = 0

-- Per due job of a page whether its time has run out; nil when no job's has.
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

-- Reads the next due jobs of a line, `size` and then twice as many; false when there are none.
local function read_on(base, line, size, may_expire)
  local key, jobs = base .. ':ready:' .. line.name, {}
  size = math.max(size, line.read, may_expire and 200 or 0)
  while not line.is_read and #jobs == 0 and met < MOST_EXPIRED do
    -- By place, which takes half as long as by score.
    local page = redis.call('ZRANGE', key, line.read, line.read + size - 1, 'WITHSCORES')
    line.read, line.is_read = line.read + size, #page < 2 * size
    local expired = expired_of(base, page, may_expire)
    local number = 0
    for index = 1, #page, 2 do
      local run_at = tonumber(page[index + 1])
      if run_at > now then
        line.is_read = true
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

-- Where a line belongs in a heap: the one whose next job is the first of all stands at the top. Only
-- the line that stands `at` this place may be behind the two below it.
local function sink(heap, size, at)
  local line = heap[at]
  local job, child = line.jobs[line.at], 2 * at
  while child <= size do
    local below = heap[child]
    local next_job = below.jobs[below.at]
    local other = child < size and heap[child + 1]
    if other and comes_first(other.jobs[other.at], next_job) then
      child, below, next_job = child + 1, other, other.jobs[other.at]
    end
    if not comes_first(next_job, job) then
      break
    end
    heap[at] = below
    at, child = child, 2 * child
  end
  heap[at] = line
end
