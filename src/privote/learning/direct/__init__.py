"""Private training without votes: on the private records themselves, with noise."""
