"""NVML in a process of its own: a call that hangs or crashes on a sick GPU ends that process alone.

`process` and `host` are the agent's side. `child` and what it imports run in the other process, and
import nothing but the standard library and the binding, to stay small.
"""
