-- works-from: 1
-- All children of a parent, also those that wait for the parent no more.

CREATE INDEX CONCURRENTLY forge_edges_of_parent ON forge_edges (parent_id, child_id);

DROP INDEX IF EXISTS forge_edges_by_parent;
