"""Letters of dead jobs: written with the end, read by the relay."""
