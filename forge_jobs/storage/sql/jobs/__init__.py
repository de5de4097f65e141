"""Jobs in a SQL store, a module for each verb of the protocol."""
