"""The fast loop: which cell takes a request, by its predicted time to first token and the answers that it
holds up there. Bounded by the slow loop, which says what cells there are; everything but `service` is
pure."""
