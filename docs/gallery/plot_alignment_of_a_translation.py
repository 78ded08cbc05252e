"""
Alignment of a translation
==========================

A model learns to write number words in digits from 2,700 pairs, in a quarter of a minute. Nobody tells it which
word a digit comes from; the attention weights show what it has found out.
"""

# %%
# Pairs such as "three hundred and twelve" and "312".

import matplotlib.pyplot as plt
import torch

from regard.data import number_words
from regard.plot import AlignmentDisplay
from regard.seq2seq import Architecture, Lesson, Training, learn

torch.set_num_threads(1)  # small models are fastest so
train, valid = number_words(3000).split(0.1)
translator, outcome = learn(
    train,
    valid,
    architecture=Architecture(embed_size=32, hidden_size=64, order="luong"),
    lesson=Lesson(unit="words", target_unit="characters"),
    training=Training(epochs=8, learning_rate=0.01),
)
texts = ["three hundred and twelve", "sixty-four thousand and nine", "nine thousand three hundred and forty-four"]
translations = translator.translate(texts)
for text, translation in zip(texts, translations, strict=True):
    print(f"{text} → {translation.text}")

# %%
# A row is a step of the decoder, a column a word of the source. The zeros have no word of their own.

fig, axes = plt.subplots(1, 3, figsize=(11, 4.4), layout="constrained")
for ax, translation in zip(axes, translations, strict=True):
    AlignmentDisplay.from_translation(translation).plot(ax, colorbar=ax is axes[-1])
    ax.set_xlabel(translation.text)
plt.show()
