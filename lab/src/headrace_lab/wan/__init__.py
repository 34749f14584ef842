"""A wide-area network between two network namespaces: delay, jitter and loss in user space.

Packets go through two TUN devices and wait in between. It needs root and /dev/net/tun, and no
kernel module for queueing disciplines.
"""
