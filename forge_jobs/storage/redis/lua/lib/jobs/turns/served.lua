-- The jobs on hold that a claim has chosen, among those of the lines, and the turns after the claim. Used with
-- turning.

-- Jobs of the lines and those on hold that come next, in one order: by priority, and by the due time or the turn.
-- A job with a crash on record that others have moved behind the last free worker is left where the job is.
local function merge(picked, chosen, workers)
  local merged, at = {}, 1
  local function add(entry)
    if #merged < workers or not entry.line.is_crashed then
      merged[#merged + 1] = entry
    end
  end
  for _, entry in ipairs(chosen) do
    if not entry.is_done then
      local other = picked[at]
      while other and (other.line.priority < entry.line.priority
        or other.line.priority == entry.line.priority and other.run_at < entry.at) do
        add(other)
        at = at + 1
        other = picked[at]
      end
      add(entry)
    end
  end
  for index = at, #picked do
    add(picked[index])
  end
  return merged
end

-- The permits of which jobs were claimed have their next turns after all others.
local function finish_turns(base, chosen)
  for _, entry in ipairs(chosen) do
    local permit = entry.is_done and entry.permit
    if permit then
      leave_parked(base, { id = entry.id, permit = permit, priority = entry.line.priority, run_at = entry.run_at })
      local may_go_on = room_of(base, permit) > 0 and redis.call('EXISTS', base .. ':parked:' .. permit) == 1
      if may_go_on then
        redis.call('ZADD', base .. ':turns', now_text, permit)
      else
        redis.call('ZREM', base .. ':turns', permit)
      end
    end
  end
  note_turns(base)
end
