"""``forge-jobs demo``: real work, a process killed half way, and nothing lost."""
