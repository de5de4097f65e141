"""Jobs: reads, and changes of one or many."""
