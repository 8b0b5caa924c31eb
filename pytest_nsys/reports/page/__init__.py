"""The page: one HTML file with its pictures."""
