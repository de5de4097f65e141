-- works-from: 1
-- Dead rows are removed when they are a hundredth of a table, not after a fixed number: that number
-- is there every minute in a big table, and each vacuum and analyze of it reads gigabytes.

ALTER TABLE forge_jobs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

ALTER TABLE forge_counters SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_edges SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_handovers SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_leader SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_pods SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_queues SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_rate_limits SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_slots SET (autovacuum_vacuum_scale_factor = 0.01);

ALTER TABLE forge_noted_beats SET (autovacuum_vacuum_scale_factor = 0.01);
