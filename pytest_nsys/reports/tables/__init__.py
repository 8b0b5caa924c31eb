"""How are tables and figures fitted into the available width, and in which formats are they written?"""
