"""`headrace top`: the region live, on a terminal to work with, and as plain lines elsewhere."""
