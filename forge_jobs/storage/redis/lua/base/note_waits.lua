-- allow-oom
-- Notes that somebody waits for jobs of a queue, who claims none. Answers 'new' when nobody was known
-- to wait, so that what came before was told to nobody, else 'known'; 'missing': no such queue.
-- uses: queues
local function handle(base)
  if not has_queue(base) then
    return 'missing'
  end
  return note_waiting(base) and 'known' or 'new'
end
