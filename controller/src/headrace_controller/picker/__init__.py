"""The fast loop: which cell takes a request, by its predicted time to first token. Bounded by the slow
loop, which says what cells there are; everything but `service` is pure."""
