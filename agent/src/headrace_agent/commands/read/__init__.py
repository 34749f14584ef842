"""`headrace-agent read`: what the agent would take from one page."""
