"""The simulator: cells, agents, gateway and the controller's own code on a virtual clock."""
