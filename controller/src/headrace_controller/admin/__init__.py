"""The operator's HTTP API: reads snapshots, and passes wishes to the control loop."""
