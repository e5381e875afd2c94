"""Collecting votes: many models asked about many public rows, into a votes file."""
