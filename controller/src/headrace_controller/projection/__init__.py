"""Pressure to integer weights: projections, ramp, hysteresis, and the plan that xDS publishes."""
