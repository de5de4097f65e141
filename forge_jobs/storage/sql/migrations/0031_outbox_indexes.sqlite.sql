-- works-from: 1
-- Records of an outbox by destination in the order of their numbers, and by the id of the job.

CREATE INDEX forge_outbox_by_destination ON forge_outbox (destination, id);

CREATE INDEX forge_outbox_by_job ON forge_outbox (job_id);
