"""How do rows and figures fit where they are read, and in which formats do they leave the program?"""
