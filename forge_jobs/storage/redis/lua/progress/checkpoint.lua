-- no-writes
-- The checkpoint of a job, '' without one.
local function handle(base, id)
  return read_record('GET', base .. ':ckpt:' .. id) or ''
end
