-- Merges lines in a heap: the one whose next job is the first of all stands at the top. Used with reading.

local function comes_first(one, other)
  if one.run_at == other.run_at then
    return is_before(one.id, other.id)
  end
  return one.run_at < other.run_at
end

-- Moves a line to the right place, when only the line `at` this place may be behind the two below.
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

local function rise(heap, line)
  local at, job = #heap + 1, line.jobs[line.at]
  while at > 1 do
    local above = math.floor(at / 2)
    local other = heap[above]
    if not comes_first(job, other.jobs[other.at]) then
      break
    end
    heap[at], at = other, above
  end
  heap[at] = line
end

-- Takes the line at the top off.
local function take_top(heap)
  local last = #heap
  heap[1] = heap[last]
  heap[last] = nil
end

-- Moves the jobs of a line to `picked` until one of another line comes first, or one due at `bound` may.
-- Returns whether the line has more. A job with a crash on record goes to a worker only: a crash of the
-- process must not take the claims of other jobs along.
local function follow(base, line, other, picked, demand, bound)
  local most = line.is_crashed and math.min(demand.workers, demand.limit) or demand.limit
  local number = #picked
  repeat
    if number >= most then
      return false
    end
    local jobs, at = line.jobs, line.at
    number = number + 1
    picked[number], line.at = jobs[at], at + 1
    if not jobs[at + 1] and not read_on(base, line, demand.size, demand.may_expire) then
      return false
    end
    local job = line.jobs[line.at]
  until job.run_at >= bound or other and comes_first(other.jobs[other.at], job)
  return true
end
