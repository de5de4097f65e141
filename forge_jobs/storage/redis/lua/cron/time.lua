-- no-writes
-- The store's time.
local function handle()
  return now
end
