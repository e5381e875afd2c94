"""Prices: what a release costs in Rényi divergence. Never samples, never sees who voted."""
