"""How does one verdict, one cause or one trend read in words?"""
