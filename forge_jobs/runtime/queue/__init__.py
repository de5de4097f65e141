"""A queue of a pod: the loop, the workers, and the runs of the jobs."""
