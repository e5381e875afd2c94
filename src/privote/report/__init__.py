"""Results for people: tables in the terminal, and self-contained pages."""
