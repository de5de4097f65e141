"""Functions of the program around enqueues and behind runs."""
