"""Features by Optimum and a pipeline of transformers: `smelt exec -- python examples/programs/features.py FOLDER`."""

import sys

import numpy as np
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer, pipeline

model = ORTModelForFeatureExtraction.from_pretrained(sys.argv[1])
extract = pipeline("feature-extraction", model=model, tokenizer=AutoTokenizer.from_pretrained(sys.argv[1]))
for sentence in ("A cat sits on the mat.", "Shares fell sharply on Monday."):
    print(" ".join(f"{value:.3f}" for value in np.array(extract(sentence))[0].mean(0)[:8]))
