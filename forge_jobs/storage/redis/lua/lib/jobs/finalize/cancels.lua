-- The end of a job that no worker runs. Used with jobs.lua and endings.lua.

local function cancel_waiting(base, job, cause)
  stop_waiting(base, job)
  end_job(base, job, 'cancelled', cause, {})
end

local function end_waiting(base, ids, cause)
  for _, id in ipairs(ids) do
    cancel_waiting(base, load(base, id), cause)
  end
end
