"""Letters of dead jobs, as the relay reads them."""
