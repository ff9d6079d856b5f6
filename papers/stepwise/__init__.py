"""A stepwise auto-profiling method (Liu et al., 2017): figures 11 to 14 on simulated clusters."""
