"""Encryption of payloads and results, and fields that people must not read."""
