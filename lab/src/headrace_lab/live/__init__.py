"""Live scenarios: real agents, controller and Envoy over simulated cells, one arm after the other."""
