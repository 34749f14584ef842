"""How far live runs and simulations agree: the same scenarios, loads and seeds both ways."""
