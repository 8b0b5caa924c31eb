"""Write serving.json: vLLM serves four requests, with prefill and decode steps by turns."""

from pathlib import Path

from tests.support.serving import four_requests, write_serving

write_serving(Path(), "kineto", four_requests()).rename("serving.json")
