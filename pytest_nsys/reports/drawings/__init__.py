"""What is drawn of a run's windows: pictures for the page, and traces for Perfetto?"""
