"""The ground floor of both SQL stores: schema, transactions, rows."""
