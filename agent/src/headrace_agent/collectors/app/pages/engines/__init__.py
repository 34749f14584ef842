"""One mapping table for each kind of engine."""
