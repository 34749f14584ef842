"""Open-loop load: requests are sent when they are due, whatever became of the ones before."""
