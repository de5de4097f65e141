-- loses: SELECT 'requests to pods' FROM forge_pod_requests
DROP TABLE forge_pod_requests;

ALTER TABLE forge_pods DROP COLUMN quiet;
