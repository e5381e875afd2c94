"""Private training without votes: noisy gradients on the private records themselves."""
