"""Neighbours: private records near a public row vote themselves."""
