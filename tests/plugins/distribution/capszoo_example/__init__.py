"""What a newcomer adds: a routing and its form for CPUs, a network that uses it, a data set and a protocol."""

from capszoo_example import data, network, protocol, routing  # noqa: F401  (each registers what it defines)
