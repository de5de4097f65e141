"""The parts of the bench that decide something."""
