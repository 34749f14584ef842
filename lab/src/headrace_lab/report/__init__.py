"""One page over all results of a directory, beside the published figures of a system like this one."""
