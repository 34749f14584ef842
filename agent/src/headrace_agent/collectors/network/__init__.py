"""The paths from this node to the gateways: round trip, jitter and loss."""
