"""How are changes, causes, rows and verdicts put into words, the same ones in every output?"""
