"""Charts as SVG from the server: spans of time, lines, and marks."""
