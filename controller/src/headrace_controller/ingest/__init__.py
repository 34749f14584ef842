"""What agents say, taken in: validation, sessions, and the gRPC stream."""
