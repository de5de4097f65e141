"""Forms: what was sent, fields and their texts, and the same as command and request."""
