"""Live values: one reading for all viewers, and the part that a viewer may see."""
