"""The processes of an engine: which they are, when one ends, and which outlive their server."""
