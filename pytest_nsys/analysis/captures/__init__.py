"""What does one run of one or several captures say, when it is opened once and asked many times?"""
