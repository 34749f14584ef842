"""The matrix: the sustainable rate of every arm, load class and SLO tier, in simulation."""
