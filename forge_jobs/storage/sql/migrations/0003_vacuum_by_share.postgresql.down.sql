ALTER TABLE forge_jobs SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_analyze_scale_factor = 0.0);

ALTER TABLE forge_counters SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_edges SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_handovers SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_leader SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_pods SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_queues SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_rate_limits SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_slots SET (autovacuum_vacuum_scale_factor = 0.0);

ALTER TABLE forge_noted_beats SET (autovacuum_vacuum_scale_factor = 0.0);
