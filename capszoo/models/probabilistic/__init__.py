"""The probabilistic generative capsules of Smith et al. 2020, and the autoencoder beside them."""
