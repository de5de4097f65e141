"""A model of the job store in plain Python, and a machine that holds a store against it."""
