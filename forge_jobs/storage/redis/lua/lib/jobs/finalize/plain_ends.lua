-- Ends of plain jobs, of which a drain has thousands: what settling.lua does with any job, without
-- what only others have, and with one write per index for all. Used with claims, endings, outcomes.

local function prepare_ends(base, outcome)
  local fields = {
    'settled', '', 'status', outcome.status, 'cause', outcome.cause, 'finished', now_text,
  }
  if not keeps(base, outcome.status) then
    fields[#fields + 1], fields[#fields + 2] = 'payload', ''
  end
  if outcome.result then
    fields[#fields + 1], fields[#fields + 2] = 'result', outcome.result
  end
  outcome.fields, outcome.number = fields, 0
  outcome.listed, outcome.dated = {}, {}
end

-- Ends a job by an outcome that is simple. list_plain_ends writes the lists.
local function end_plain(base, job, outcome)
  if not outcome.fields then
    prepare_ends(base, outcome)
  end
  local id, number, fields = job.id, outcome.number + 2, outcome.fields
  fields[2] = job.token_text
  redis.call('HSET', base .. ':j:' .. id, unpack(fields))
  outcome.listed[number - 1], outcome.listed[number] = '0', id
  outcome.dated[number - 1], outcome.dated[number] = now_text, id
  outcome.number = number
  count(outcome.cause, job.host)
end

local function list_plain_ends(base, outcomes)
  for _, outcome in ipairs(outcomes) do
    if outcome.fields then
      call_many('ZADD', base .. ':s:' .. outcome.status, outcome.listed)
      call_many('ZADD', base .. ':ended:' .. outcome.status, outcome.dated)
    end
  end
end
