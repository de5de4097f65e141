-- allow-oom
-- Leaves no token in the bucket. Answers false when there is no such bucket.
-- uses: buckets
local function handle(base, request)
  local scope = request[1]
  local bucket = load_bucket(base, scope)
  if bucket then
    -- Reserved tokens stay reserved.
    bucket.level, bucket.updated = math.max(bucket.capacity * bucket.token, level_of(bucket)), now
    store_bucket(base, scope, bucket)
  end
  return bucket ~= nil
end
