"""What Envoys report back: a record of each request, and the load of each endpoint."""
