-- no-writes
-- Answers the keys under a base ('queue' or 'fleet') that hold something of another type than they must:
-- the name behind the base, the type that must be there, and whether nothing can be done there without the
-- key.
local NEEDED = {
  queue = 'hash', slots = 'hash', lines = 'zset', held = 'zset', claimed = 'zset', owners = 'hash',
  started = 'zset', unique = 'hash', expiring = 'zset', handovers = 'zset', gone = 'zset',
  letters = 'zset', parks = 'zset', sequences = 'hash', struck = 'zset', turns = 'zset',
}
local OF_STATUS = { 'blocked', 'pending', 'failed', 'done', 'dead', 'cancelled' }
local OTHERS = {
  results = 'zset', minutes = 'zset', unfolded = 'zset', hours = 'zset', events = 'zset',
  errors = 'zset', error_hours = 'zset', flow_minutes = 'zset', flow_hours = 'zset',
  unlocated = 'zset', barred = 'zset', flow_totals = 'hash', at_most = 'hash',
}
local OF_FLEET = {
  queues = 'set', pods = 'zset', leader = 'hash', schedules = 'hash', due = 'zset', outbox = 'hash',
  limits = 'hash', gauges = 'zset', pod_hours = 'zset', schema = 'hash', events = 'zset',
  actions = 'zset', flow_minutes = 'zset', flow_hours = 'zset', strikes = 'hash',
}
local READ = { hash = 'HLEN', zset = 'ZCARD', set = 'SMEMBERS' }

local function look(found, base, name, wanted, is_needed)
  local answer = redis.pcall(READ[wanted], base .. ':' .. name)
  if is_wrong_type(answer) then
    found[#found + 1] = { name, wanted, is_needed }
  end
end

local function look_at_lines(found, base)
  local lines = redis.pcall('ZRANGE', base .. ':lines', 0, -1)
  for _, line in ipairs(lines) do
    look(found, base, 'ready:' .. line, 'zset', true)
    look(found, base, 'kind:' .. string.match(line, '^%S+ . (.*)$'), 'zset', true)
  end
  local letters = redis.pcall('ZRANGE', base .. ':letters', 0, -1)
  for _, to in ipairs(letters) do
    look(found, base, 'letters:' .. to, 'zset', true)
  end
  local permits = redis.pcall('ZRANGE', base .. ':parks', 0, -1)
  for _, permit in ipairs(permits) do
    look(found, base, 'parked:' .. permit, 'zset', true)
  end
  local marks = redis.pcall('ZRANGE', base .. ':struck', 0, -1)
  for _, mark in ipairs(marks) do
    look(found, base, 'struck:' .. mark, 'zset', true)
  end
  local hosts = redis.pcall('HKEYS', base .. ':owners')
  for _, host in ipairs(hosts) do
    look(found, base, 'own:' .. host, 'set', false)
  end
end

local function handle(base, what)
  local found, is_queue = {}, what == 'queue'
  for name, wanted in pairs(is_queue and NEEDED or OF_FLEET) do
    look(found, base, name, wanted, is_queue)
  end
  if is_queue then
    for name, wanted in pairs(OTHERS) do
      look(found, base, name, wanted, false)
    end
    for _, status in ipairs(OF_STATUS) do
      look(found, base, 's:' .. status, 'zset', true)
      look(found, base, 'ended:' .. status, 'zset', true)
    end
    look_at_lines(found, base)
  end
  return found
end
