"""The demonstration: a small fleet of simulated cells under the real agent, controller and Envoy."""
