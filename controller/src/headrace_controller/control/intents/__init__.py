"""What operators ask for: kept, carried out, and accounted for."""
