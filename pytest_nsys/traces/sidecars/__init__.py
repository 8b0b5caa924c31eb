"""What is in the files that lie beside a trace?"""
