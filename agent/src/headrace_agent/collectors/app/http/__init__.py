"""How an engine is asked: one HTTP client, bounded in time and size, and what each failure means."""
