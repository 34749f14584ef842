"""Plans to xDS: resources, checked snapshots, and the ADS server that Envoys subscribe to."""
