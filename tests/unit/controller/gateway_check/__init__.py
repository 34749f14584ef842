"""The check of a gateway's configuration, on pages that a real Envoy wrote."""
