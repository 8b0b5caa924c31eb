"""How is somebody else's SQLite file read safely and quickly, as rows or as columns?"""
