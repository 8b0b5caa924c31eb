"""What does one run say, of one or several captures, when it is opened once and queried many times?"""
