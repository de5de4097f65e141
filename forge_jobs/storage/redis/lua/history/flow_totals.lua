-- no-writes
-- Answers what a queue and its kinds have counted in all: { kind, record } each.
-- uses: queues histograms series
local function handle(base)
  local found, listed = {}, redis.call('HGETALL', base .. ':flow_totals')
  for index = 1, #listed, 2 do
    found[#found + 1] = { listed[index], unpack_record(listed[index + 1]) }
  end
  return found
end
