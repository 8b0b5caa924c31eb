"""How is the page built: one HTML file with its pictures?"""
