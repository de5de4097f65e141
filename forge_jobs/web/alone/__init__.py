"""The dashboard without a host application: users, sign-in, and the server."""
