"""The stores of tests: private ones, and places on servers."""
