-- loses: SELECT 'objectives of queues' FROM forge_queues WHERE objective <> ''
ALTER TABLE forge_queues DROP COLUMN objective;
