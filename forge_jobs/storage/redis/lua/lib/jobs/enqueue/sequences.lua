-- Sequences: hash 'sequences' of key -> the last job, as long as that job is stored. The field 'sequence'
-- of a job is the policy and the key. Used with jobs, endings, handing, linking.

-- Puts new jobs in line: each waits for the job before, by an edge like any other. A job that is done or
-- gone need not be waited for. Answers the links to write once the jobs are stored.
local function put_in_line(base, jobs)
  local last, links, fresh = {}, {}, {}
  for _, job in ipairs(jobs) do
    fresh[job.id] = job.sequence or ''
    local policy, key = string.match(job.sequence or '', '^(%S+) (.*)$')
    if key then
      local before = last[key] or redis.call('HGET', base .. ':sequences', key)
      local status = before and (fresh[before] and 'new' or redis.call('HGET', base .. ':j:' .. before, 'status'))
      local parents, is_named = job.parents or {}, false
      for index = 1, #parents, 2 do
        -- An edge to a named parent of the sequence is of the sequence too.
        local parent = parents[index]
        local of = fresh[parent] or redis.call('HGET', base .. ':j:' .. parent, 'sequence') or ''
        if string.match(of, '^%S+ (.*)$') == key then
          is_named = is_named or parent == before
          parents[index + 1] = string.gsub(parents[index + 1], '^(%S+ %S+)', '%1_in_line')
        end
      end
      if status and status ~= 'done' and not is_named then
        parents[#parents + 1], parents[#parents + 2] = before, 'open ' .. policy .. ' ' .. text(now - 1)
        job.parents = parents
        links[#links + 1] = { before, 'left', { { job.id, base:match('{(.*)}') .. ' ' .. policy } } }
      end
      last[key] = job.id
    end
  end
  for key, id in pairs(last) do
    redis.call('HSET', base .. ':sequences', key, id)
  end
  return links
end
