"""Actions of operators: previewed, recorded, driven step by step, aborted, undone."""
