-- allow-oom
-- Leaves no token in the bucket. Answers false when there is no such bucket.
-- uses: buckets
local function handle(base, request)
  local scope = request[1]
  local bucket = load_bucket(base, scope)
  if bucket then
    bucket.level, bucket.updated = bucket.capacity * bucket.token, now
    store_bucket(base, scope, bucket)
  end
  return bucket ~= nil
end
