"""Whether an engine serves: probes, the watch on a connection, the warm-up, and the state they give."""
