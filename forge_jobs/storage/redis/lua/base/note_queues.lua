-- allow-oom
-- Adds to the names of all queues.
local function handle(base, names)
  for _, name in ipairs(names) do
    redis.call('SADD', base .. ':queues', name)
  end
end
