"""The region as a stream of changes: frames made once, for all who watch."""
