"""One queue on this pod: its supervisor, its workers, and the runs of its jobs."""
