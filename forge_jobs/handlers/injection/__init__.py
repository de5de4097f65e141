"""Parameters of handlers that no payload brings: what makes each, and how long each lives."""
