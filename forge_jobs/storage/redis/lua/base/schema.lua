-- allow-oom
-- The layout's version, under the base of the fleet: hash 'schema', number -> "time from=N name". Programs
-- whose own last migration is N or later work with the store. Without "from=" only programs that know the
-- migration do.
-- request: { mode, { { number, name, works from } ... } }. mode 'look' changes nothing, 'create' notes the
-- migrations in an empty store, 'migrate' notes those that are missing, unless there is one that does not
-- work with this program.
-- answer: { { number, time, name, works from, is_new } ... }, in no order, with the time in microseconds.
local function handle(base, request)
  local mode, known = unpack(request)
  local key = base .. ':schema'
  local answer, applied, is_newer, mine = {}, {}, false, 0
  for _, migration in ipairs(known) do
    local number = unpack(migration)
    applied[number] = false
    mine = math.max(mine, number)
  end
  local fields = redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    local number = tonumber(fields[index])
    local time, name = fields[index + 1]:match('^(%d+) (.*)$')
    local from, rest = name:match('^from=(%d+) (.*)$')
    from = tonumber(from or number)
    is_newer = is_newer or (applied[number] == nil and from > mine)
    applied[number] = true
    answer[#answer + 1] = { number, tonumber(time), rest or name, from, false }
  end
  local may = mode == 'migrate' or (mode == 'create' and #fields == 0)
  for _, migration in ipairs(known) do
    local number, name, from = unpack(migration)
    if may and not is_newer and not applied[number] then
      redis.call('HSET', key, number, text(now) .. ' from=' .. from .. ' ' .. name)
      answer[#answer + 1] = { number, now, name, from, true }
    end
  end
  return answer
end
