"""Jobs that belong together: groups and chains."""
