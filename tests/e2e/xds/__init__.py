"""The xDS stage with a real Envoy and small cells on loopback."""
