-- allow-oom
-- Removes letters { their queue, name } whose jobs are stored.
local function handle(base, letters)
  for _, letter in ipairs(letters) do
    local to, name = unpack(letter)
    local key = base .. ':letters:' .. to
    redis.call('DEL', base .. ':letter:' .. name)
    redis.call('ZREM', key, name)
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':letters', to)
    end
  end
end
