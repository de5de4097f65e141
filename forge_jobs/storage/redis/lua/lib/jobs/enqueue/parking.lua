-- New jobs whose permit has no room: on hold from the enqueue on, out of the lines. Used with inserting.lua.

-- By base and permit: new jobs go on hold. By base: any job is on hold. Found once in a step.
local held_permits, are_parked = {}, {}

-- Puts a new job that is due at once on hold behind others of the permit, where the permit is full, and where the
-- keys of the limit take turns: then the permit has a turn if there is room. Returns whether the job is on hold.
-- Beside a key of another type the job goes into the lines, for a claim.
local function park_new(base, job)
  local permit, template = job.permit, job.template
  local is_held = held_permits[base .. permit]
  if template.delay or template.run_at then
    return false
  elseif is_held == nil then
    if are_parked[base] == nil then
      are_parked[base] = redis.call('EXISTS', base .. ':parks') == 1
    end
    local waiting = not are_parked[base] and 0 or read_record('ZCARD', base .. ':parked:' .. permit)
    local room, share, used = room_of(base, permit)
    is_held = waiting and (waiting > 0 or used and (room <= 0 or share)) and true or false
    if is_held and share and room > 0 and redis.call('ZADD', base .. ':turns', 'NX', now_text, permit) == 1 then
      wake_queue(base)
    end
    held_permits[base .. permit] = is_held
  end
  if is_held then
    local place = place_of(template.priority, template.due, job.id)
    later('ZADD', base .. ':parked:' .. permit, 0, place)
    later('ZADD', base .. ':parks', 0, permit)
    job.is_parked = true
  end
  return is_held
end
