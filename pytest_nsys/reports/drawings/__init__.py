"""What is drawn of a window, on a page or in Perfetto?"""
