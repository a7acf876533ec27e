"""The networks of Kiefer et al. 2022: iterative inference, and top-down attention."""
