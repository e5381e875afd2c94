"""Students: what learns from released labels, which costs no privacy."""
