-- Appends to the timeline: { least number, at, kind, job, host, detail } each.
-- uses: events
local function handle(base, request)
  for _, event in ipairs(request) do
    local least, at, kind, id, host, detail = unpack(event)
    append_event(base, at, kind, id, host, detail, least)
  end
end
