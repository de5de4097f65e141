-- Notes whether limits of a queue have a share, for claims, which read the state of the queue.
local function note_shares(base)
  for _, stored in ipairs(redis.call('HVALS', base .. ':at_most')) do
    if string.find(stored, '/', 1, true) then
      redis.call('HSET', base .. ':queue', 'shared', '1')
      return
    end
  end
  redis.call('HDEL', base .. ':queue', 'shared')
end
