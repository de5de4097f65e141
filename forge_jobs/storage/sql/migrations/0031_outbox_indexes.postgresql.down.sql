DROP INDEX forge_outbox_by_job;

DROP INDEX forge_outbox_by_destination;
