"""One queue of a pod: its loop, its workers, and the runs of its jobs."""
