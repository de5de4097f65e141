-- Adds failures to their groups: { group, kind, type, message, first, last, versions, jobs, hours }
-- each, with versions and jobs as texts of lines, and hours as { hour, numbers by places }, the places
-- and numbers in turn. Also how many groups, jobs and versions stay at most, and the group of all others.
-- uses: histograms failures
local function group_for(base, group, kind, type_of, message, most, other)
  if redis.call('EXISTS', base .. ':eg:' .. group) == 0 then
    if redis.call('ZCARD', base .. ':errors') >= most then
      group, kind, type_of, message = other, '', '', ''
    end
    if redis.call('EXISTS', base .. ':eg:' .. group) == 0 then
      redis.call('HSET', base .. ':eg:' .. group, 'kind', kind, 'type', type_of, 'message', message)
    end
  end
  return group
end

local function change(base, group, first, last, versions, jobs)
  local key = base .. ':eg:' .. group
  local v = read_fields(key, 'first', 'last', 'versions', 'jobs')
  last = math.max(whole(v[2], 0), last)
  redis.call(
    'HSET', key, 'first', text(math.min(whole(v[1], first), first)), 'last', text(last),
    'versions', versions(v[3] or ''), 'jobs', jobs(v[4] or '')
  )
  redis.call('ZADD', base .. ':errors', text(last), group)
end

local function add_hour(base, group, hour, numbers)
  local key, sums = base .. ':eh:' .. text(hour), {}
  add_pairs(sums, unpack_numbers(redis.call('HGET', key, group)))
  add_pairs(sums, numbers)
  redis.call('HSET', key, group, cmsgpack.pack(as_pairs(sums)))
  redis.call('ZADD', base .. ':error_hours', text(hour), text(hour))
end

local function handle(base, request)
  local found, most, jobs_kept, versions_kept, other = unpack(request)
  for _, failed in ipairs(found) do
    local id, kind, type_of, message, first, last, versions, jobs, hours = unpack(failed)
    local group = group_for(base, id, kind, type_of, message, most, other)
    change(base, group, first, last, function(before)
      return joined(before, versions, versions_kept, true)
    end, function(before)
      return joined(jobs, before, jobs_kept, false)
    end)
    for _, hour in ipairs(hours) do
      add_hour(base, group, hour[1], hour[2])
    end
  end
end
