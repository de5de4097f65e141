"""What several parts of the runtime use."""
