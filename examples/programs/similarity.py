"""Similarity of sentences by sentence-transformers: `smelt exec -- python examples/programs/similarity.py FOLDER`."""

import sys

from sentence_transformers import SentenceTransformer

SENTENCES = ["A cat sits on the mat.", "The animal rests on a rug.", "Shares fell sharply on Monday."]

model = SentenceTransformer(sys.argv[1], backend="onnx", device="cpu")
for row in model.similarity(model.encode(SENTENCES), model.encode(SENTENCES)):
    print(" ".join(f"{value:.4f}" for value in row.tolist()))
