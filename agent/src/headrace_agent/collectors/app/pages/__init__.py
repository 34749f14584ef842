"""What an engine's metrics pages say: from bytes to signals."""
