"""`headrace-agent check`: every source of a config, tried for real, and how to mend what is wrong."""
