-- Merges the lines of one priority. Used with ready, reading, merging.
--
-- The lines of a priority are read in the order of their bounds, and only as far as a job of them may
-- come before those at hand. Of few lines all are read.

-- A step reads so many lines of many, and so many lines and jobs together. Where more than MOST_READ have
-- jobs due within one STEP, these are claimed in the order of their lines.
local MOST_READ, MOST_WORK, LAST = 150, 250, math.huge

-- Reads the next lines of a level that may have the first job. The bound of those that are left.
local function read_lines(base, level, heap, demand)
  local listed = level.listed
  while level.at < level.ends do
    local bound = demand.are_many and bound_of(listed[level.at + 1]) or 0
    local first = heap[1]
    if bound > now then
      level.at = level.ends
    elseif first and bound > first.jobs[first.at].run_at then
      return bound
    elseif #demand.lines >= MOST_READ then
      demand.is_cut = true
      return bound + STEP
    else
      local line = parse_line(listed[level.at])
      level.at, line.read, line.score = level.at + 2, 0, listed[level.at + 1]
      local known = demand.known[line.kind]
      if known == 'mine' then
        demand.lines[#demand.lines + 1] = line
        if read_on(base, line, demand.size, demand.may_expire) then
          rise(heap, line)
        end
      elseif not known and has_due(base, line) then
        demand.strange[#demand.strange + 1] = line.kind
      end
    end
  end
  return LAST
end

-- Few jobs of each line are read that are not taken.
local function pick(base, level, picked, demand)
  local heap, wanted = {}, demand.limit - #picked
  local lines = (level.ends - level.at) / 2
  demand.size = math.ceil(wanted / lines) + (lines > 1 and wanted > lines and 1 or 0)
  demand.size = math.max(demand.size, demand.may_expire and math.ceil(200 / lines) or 0)
  repeat
    local bound = read_lines(base, level, heap, demand)
    local line, other, third = heap[1], heap[2], heap[3]
    if not line or line.jobs[line.at].run_at >= bound then
      return
    elseif third and comes_first(third.jobs[third.at], other.jobs[other.at]) then
      other = third
    end
    if not follow(base, line, other, picked, demand, bound) then
      take_top(heap)
    end
    if heap[2] then
      sink(heap, #heap, 1)
    end
    local is_much = demand.are_many and #picked + #demand.lines >= MOST_WORK
    demand.is_cut = demand.is_cut or is_much
  until is_much or #picked >= demand.limit
end
