"""How does the page read: one HTML file with its pictures?"""
