-- Prepares the template of many jobs, the values that they share, once. See inserting.lua. Used with jobs
-- and lists.

local function due_at(template)
  if template.delay then
    return now + template.delay
  end
  return whole(template.run_at, now, FURTHEST)
end

-- Sets when jobs of a template are due, the lists they are in, and the fields of their hash: first
-- status and payload of each job, see insert. Times that a user gave are texts: beyond the year
-- 2255 a number would not be exact.
local function prepare(base, template)
  template.due = due_at(template)
  template.lists, template.crashes = shared_lists(base, template), 0
  template.line = line_of(template)
  template.ready, template.pending = base .. ':ready:' .. template.line, base .. ':s:pending'
  local due = template.run_at or template.delay and text(template.due)
  local fields = {
    'status', '', 'payload', '', 'cause', 'enqueued', 'kind', template.kind, 'priority',
    template.priority, 'run_at', due or now_text, 'enqueued', now_text, 'token', now_text, 'doc',
    template.doc,
  }
  local function set(name, value)
    if value then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  set('requested', due)
  set('expires', template.expires)
  set('tags', template.tags)
  set('schedule', template.schedule)
  set('result_ttl', template.result_ttl)
  set('more', (template.expires or template.tags or template.schedule or template.result_ttl) and '1')
  template.fields = fields
end
