"""The xDS stage: resources, snapshots and streams, without a socket."""
