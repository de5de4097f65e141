-- allow-oom
-- The layout's version, under the base of the fleet: hash 'schema', number -> "time name".
-- request: { mode, { { number, name } ... } }. mode 'look' changes nothing, 'create' notes the
-- migrations in an empty store, 'migrate' those that are missing, unless a newer program was here.
-- answer: { { number, time, name, is_new } ... }, in no order; time is in microseconds.
local function handle(base, request)
  local mode, known = request[1], request[2]
  local key = base .. ':schema'
  local answer, applied, is_newer = {}, {}, false
  for _, migration in ipairs(known) do
    applied[migration[1]] = false
  end
  local fields = redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    local number = tonumber(fields[index])
    local time, name = fields[index + 1]:match('^(%d+) (.*)$')
    is_newer = is_newer or applied[number] == nil
    applied[number] = true
    answer[#answer + 1] = { number, tonumber(time), name, false }
  end
  local may = mode == 'migrate' or (mode == 'create' and #fields == 0)
  for _, migration in ipairs(known) do
    local number, name = migration[1], migration[2]
    if may and not is_newer and not applied[number] then
      redis.call('HSET', key, number, text(now) .. ' ' .. name)
      answer[#answer + 1] = { number, now, name, true }
    end
  end
  return answer
end
