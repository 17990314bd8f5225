"""Text in an image by rapidocr-onnxruntime: `smelt exec -- python examples/programs/text_in_images.py`."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

image = Image.new("RGB", (640, 200), "white")
draw = ImageDraw.Draw(image)
draw.text((20, 30), "Invoice 2041 total 17.50", fill="black", font=ImageFont.load_default(40))
draw.text((20, 110), "Hello from the printer", fill="black", font=ImageFont.load_default(40))

lines, _ = RapidOCR()(np.asarray(image))
for _, text, score in lines:
    print(f"{float(score):.2f}", text)
