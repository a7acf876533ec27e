"""NumPy float64 oracles, one file per routing algorithm, written from the papers' equations."""
