CREATE INDEX forge_edges_by_parent ON forge_edges (parent_id) WHERE link IN ('live', 'told');

DROP INDEX forge_edges_of_parent;
