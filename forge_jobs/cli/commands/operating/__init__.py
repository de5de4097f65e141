"""Commands about operators and what they did."""
