"""Probability of speech in each frame by silero-vad: `smelt exec -- python examples/programs/speech.py`."""

import numpy as np
import torch
from silero_vad import load_silero_vad

RATE, FRAME = 16000, 512

seconds = np.arange(4 * RATE) / RATE
hum = 0.3 * np.sin(2 * np.pi * 150 * seconds) * (np.sin(2 * np.pi * 3 * seconds) > 0)
sound = (hum + 0.05 * np.random.default_rng(0).standard_normal(seconds.size)).astype(np.float32)

model = load_silero_vad(onnx=True)
for start in range(0, sound.size - FRAME, FRAME):
    print(f"{float(model(torch.from_numpy(sound[start : start + FRAME]), RATE)):.3f}")
