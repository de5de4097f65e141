-- no-writes
-- The store's time, and how many strikes there are.
local function handle(base)
  return { now, read_record('HLEN', base .. ':strikes') or 1 }
end
