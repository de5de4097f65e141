-- New jobs whose permit has no room: on hold from the enqueue on, out of the lines. Used with inserting.lua.

-- By base and permit: new jobs go on hold. By base: any job is on hold, and how many jobs of each permit are new.
-- Found once in a step.
local held_permits, are_parked, new_by_permit = {}, {}, {}

-- So many more jobs than there is room are a burst: those that there is room for are ready at the end of the step.
local MANY = 100

-- The job on hold that comes first, where the permit has room. A new job that goes before that one is ready at the
-- end of the step. Others of the permit are ready, and a claim goes by the lines.
local first_places, rooms_left = {}, {}

-- Puts a new job that is due at once on hold behind others of the permit, where the permit is full, in a burst, and
-- where the keys of the limit take turns: then the permit has a turn if there is room. Returns whether the job is on
-- hold. Beside a key of another type the job goes into the lines, for a claim.
local function park_new(base, job, jobs)
  local permit, template = job.permit, job.template
  local of = base .. permit
  local is_held = held_permits[of]
  if template.delay or template.run_at then
    return false
  elseif is_held == nil then
    if are_parked[base] == nil then
      are_parked[base] = redis.call('EXISTS', base .. ':parks') == 1
    end
    local waiting = not are_parked[base] and 0 or read_record('ZCARD', base .. ':parked:' .. permit)
    local room, share, used = room_of(base, permit)
    is_held = waiting and (waiting > 0 or used and (room <= 0 or share)) and true or false
    if waiting and not is_held and used and room <= MOST_OPENED and #jobs > room + MANY then
      local numbers = new_by_permit[base] or {}
      for _, each in ipairs(new_by_permit[base] and {} or jobs) do
        local of_each = each.template
        if each.permit and not (of_each.delay or of_each.run_at or each.parents or each.struck) then
          numbers[each.permit] = (numbers[each.permit] or 0) + 1
        end
      end
      new_by_permit[base] = numbers
      is_held = numbers[permit] > room + MANY
      if is_held then
        freed_permits[permit], at_end = room, open_freed
      end
    end
    if is_held and share and room > 0 and redis.call('ZADD', base .. ':turns', 'NX', now_text, permit) == 1 then
      wake_queue(base)
    elseif is_held and not share and room > 0 and waiting > 0 then
      first_places[of] = (read_record('ZRANGE', base .. ':parked:' .. permit, 0, 0) or {})[1]
      rooms_left[of] = room
    end
    held_permits[of] = is_held
  end
  if is_held then
    local place = string.format(PARKED, template.priority + 2 ^ 31, math.min(template.due, LAST_DUE), job.id)
    later('ZADD', base .. ':parked:' .. permit, 0, place)
    later('ZADD', base .. ':parks', 0, permit)
    job.is_parked = true
    if first_places[of] and rooms_left[of] > 0 and is_before(place, first_places[of]) then
      free_permit(base, permit)
      rooms_left[of] = rooms_left[of] - 1
    end
  end
  return is_held
end
