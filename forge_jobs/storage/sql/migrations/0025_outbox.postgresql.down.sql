-- loses: SELECT 'jobs for another store' FROM forge_outbox
DROP TABLE forge_outbox;
