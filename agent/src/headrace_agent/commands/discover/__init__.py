"""`headrace-agent discover`: the GPUs and engines of this host, and a config for them."""
