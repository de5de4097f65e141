-- loses: SELECT 'hours of the metrics' FROM forge_hours UNION SELECT 'hours of the pods' FROM forge_pod_hours
DROP TABLE forge_pod_hours;

DROP TABLE forge_hours;
