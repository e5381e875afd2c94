"""Networks of torch, for teachers, students and private training alike; need the extra [deep]."""
