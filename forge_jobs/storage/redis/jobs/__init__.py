"""Jobs in a Redis store, a module for each verb of the protocol."""
