-- no-writes
-- Answers groups that failed in a range, the last failure first, as read_group gives them. Request: begin
-- and end of the range, the first hour, how many groups at most, the last failure of those that were
-- read, false before any, and before which group those stand that failed then and are left.
-- uses: failures
local function handle(base, request)
  local since, ends, first_hour, most, last, group = unpack(request)
  local from = last and text(last) or '+inf'
  local named = redis.call('ZRANGE', base .. ':errors', from, text(since), 'BYSCORE', 'REV', 'WITHSCORES')
  local hours, groups = hours_between(base, first_hour, ends), {}
  for index = 1, #named, 2 do
    local is_read = last == tonumber(named[index + 1]) and not is_before(named[index], group)
    local first = whole(redis.call('HGET', base .. ':eg:' .. named[index], 'first'), 0)
    if #groups < most and not is_read and first < ends then
      groups[#groups + 1] = read_group(base, named[index], hours)
    end
  end
  spend(10 + #named / 8)
  return groups
end
