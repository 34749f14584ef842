"""The ADS server over real gRPC, with an in-process client that plays Envoy."""
