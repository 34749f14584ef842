"""The control loop: the only place that carries the pure stages' instructions out."""
