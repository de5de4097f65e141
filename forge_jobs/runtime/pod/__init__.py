"""A pod from its start to its stop, and the owner of each of its tasks and threads."""
