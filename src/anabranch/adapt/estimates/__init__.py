"""Estimates that several policies share: costs, rates, forecasts of plans."""
