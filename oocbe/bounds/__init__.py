"""Lower bounds: relaxations, mini-buckets, reductions, and local search for incumbents."""
