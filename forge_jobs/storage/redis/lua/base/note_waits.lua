-- allow-oom
-- Notes that a caller waits for jobs of a queue and claims none. Answers 'new' when no waiter was known, so
-- that no wake-up was sent for what came before, 'known' when one was, 'missing' when there is no such
-- queue.
-- uses: queues
local function handle(base)
  if not has_queue(base) then
    return 'missing'
  end
  return note_waiting(base) and 'known' or 'new'
end
