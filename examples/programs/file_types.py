"""Types of files by magika: `smelt exec -- python examples/programs/file_types.py`."""

from magika import Magika

SAMPLES = {
    "python": b"import os\n\n\ndef main():\n    print(os.getcwd())\n" * 20,
    "c": b"#include <stdio.h>\nint main(void) { return 0; }\n" * 10,
    "json": b'{"a": [1, 2, 3], "b": {"c": null}}',
    "html": b"<html><body><p>hello</p></body></html>" * 5,
}

magika = Magika()
for name, content in SAMPLES.items():
    found = magika.identify_bytes(content)
    print(name, found.output.label, f"{found.score:.3f}")
