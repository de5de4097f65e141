-- The scores of zset 'lines': the priority of a line, and as the fraction a bound, a time before which no
-- job of the line is due. Zero says nothing. Older programs write the priority alone.
--
-- A priority takes 8 bits of a number's 53, a bound the other 45: steps of 256 microseconds.
local STEP, BOUNDS = 256, 2 ^ 45

local function line_score(priority, run_at)
  local step = math.floor(run_at / STEP)
  return priority + math.min(math.max(step, 0), BOUNDS - 1) / BOUNDS
end

local function bound_of(score)
  return (score - math.floor(score)) * BOUNDS * STEP
end

-- Writes what is known of the lines after a claim.
local function write_bounds(base, lines)
  local found = {}
  for _, line in ipairs(lines) do
    local job = line.jobs[line.at]
    -- Of a line that was read as a whole nothing but expired jobs is left.
    local run_at = job and job.run_at or line.ahead or line.is_read and now
    local score = run_at and not line.is_gone and line_score(line.priority, run_at)
    if score and score ~= tonumber(line.score) then
      found[#found + 1], found[#found + 2] = score, line.name
    end
  end
  call_many('ZADD', base .. ':lines', found)
end

-- Lists lines in which jobs have come to stand: score and name in turn. A bound is only lowered.
local function lower_bounds(base, scored)
  for first = 1, #scored, 400 do
    local last = math.min(first + 399, #scored)
    redis.call('ZADD', base .. ':lines', 'LT', unpack(scored, first, last))
  end
end
