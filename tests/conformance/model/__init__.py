"""A model of the job store in plain Python, and a machine that compares a store with the model."""
