"""Envoy resources, one file a type; pure functions from plan and settings to messages."""
