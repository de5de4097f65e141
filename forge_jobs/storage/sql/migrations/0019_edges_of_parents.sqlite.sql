-- works-from: 1
-- All children of a parent, also those that wait for the parent no more.

CREATE INDEX forge_edges_of_parent ON forge_edges (parent_id, child_id);

DROP INDEX forge_edges_by_parent;
