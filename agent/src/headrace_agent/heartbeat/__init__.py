"""Readings to messages, and messages to every controller."""
