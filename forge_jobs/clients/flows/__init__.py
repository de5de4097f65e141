"""Jobs that belong together: groups, chains and workflows."""
