-- no-writes
-- Finds matching jobs that stand in a line, behind one place, the earliest due time first. Looks at a
-- bounded number. Answers { ids, where the walk stopped, the times of these jobs, the time of the stop }.
-- uses: places terms filters ranks
local function handle(base, request)
  local meant, beyond, wanted, visited, at = unpack(request)
  local filter, keys = read_filter(meant), {}
  for _, line in ipairs(redis.call('ZRANGE', base .. ':lines', 0, -1)) do
    if not filter.is_kind or filter.is_kind[string.match(line, '^%S+ . (.*)$')] then
      keys[#keys + 1] = base .. ':ready:' .. line
    end
  end
  return walk_by_time(base, keys, filter, { at = at, id = beyond }, wanted, visited, false)
end
