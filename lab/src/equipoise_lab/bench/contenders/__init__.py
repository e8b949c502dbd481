"""Every way of doing the same work that benchmarks compare, ours among them."""
