-- no-writes
-- Finds matching jobs that have ended, behind one place, the last to end first. Looks at a bounded
-- number. Answers { ids, where the walk stopped, the times of these jobs, the time of the stop }.
-- uses: places terms filters ranks
local function handle(base, request)
  local meant, beyond, wanted, visited, at = unpack(request)
  local filter, keys = read_filter(meant), {}
  for _, status in ipairs({ 'done', 'dead', 'cancelled' }) do
    if not filter.is_status or filter.is_status[status] then
      keys[#keys + 1] = base .. ':ended:' .. status
    end
  end
  return walk_by_time(base, keys, filter, { at = at, id = beyond }, wanted, visited, true)
end
