"""Read the texts, clean them, split off a held-out part and turn them into token ids.

Everything here is deterministic: the same data folder gives the same split.
"""

import math
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

VOCAB = 50257  # GPT-2's vocabulary
EOT = 50256  # <|endoftext|>: separates documents
SEED = 2026

# file, and how often each of its documents is seen per epoch (stories are the most fluent part)
SOURCES = {
    "tinystories_combined": 1.4,
    "fairytaleqa_stories": 1.0,
    "andersen_fairy_tales_en": 1.0,
    "pratham_books_en": 1.0,
    "african_storybook_en": 1.0,
    "tinyshakespeare": 0.4,
}

# UTF-8 punctuation that was once decoded as Windows-1252, then typographic marks -> plain ASCII.
# (Every curly quote costs GPT-2 two or three tokens; the plain one is part of its common tokens.)
_REPLACE = [
    ("â€œ", '"'), ("â€\x9d", '"'), ("â€™", "'"), ("â€˜", "'"), ("â€“", "-"), ("â€”", "-"),
    ("â€¦", "..."), ("â€", '"'), ("“", '"'), ("”", '"'), ("‘", "'"), ("’", "'"), ("–", "-"),
    ("—", "-"), ("…", "..."), ("\u00a0", " "), ("\ufffd", ""), ("\ufeff", ""), ("\r", ""),
]


def clean(text):
    for old, new in _REPLACE:
        text = text.replace(old, new)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return re.sub(r" {2,}", " ", text).strip()


def documents(path):
    """The documents of one file: its <|endoftext|> parts; the plays are cut every 40 speeches."""
    text = path.read_text(encoding="utf-8", errors="replace")
    parts = text.split("<|endoftext|>")
    if len(parts) == 1:
        speeches = text.split("\n\n")
        parts = ["\n\n".join(speeches[i : i + 40]) for i in range(0, len(speeches), 40)]
    seen, docs = set(), []
    for part in map(clean, parts):
        if part and part not in seen:  # some picture books are there twice
            seen.add(part)
            docs.append(part)
    return docs


def shingles(text, n=10):
    words = re.findall(r"[a-z']+", text.lower())
    return {" ".join(words[i : i + n]) for i in range(len(words) - n + 1)}


def load(data_dir):
    """-> (train, held_out, info): {source: [ids, ...]} twice, and counts for the model card."""
    data_dir = Path(data_dir)
    tok = Tokenizer.from_file(str(data_dir / "tokenizer" / "tokenizer.json"))
    train, held = {}, {}
    for name in SOURCES:
        docs = documents(data_dir / "text" / f"{name}.txt")
        rng = random.Random(f"{SEED} {name}")
        rng.shuffle(docs)
        n_held = math.ceil(0.03 * len(docs))
        held[name], train[name] = docs[:n_held], docs[n_held:]

    # The collections overlap (the same tale in two books): a training document that shares more
    # than a tenth of its ten-word runs with the held-out documents is dropped from training.
    unseen = set().union(*(shingles(d) for docs in held.values() for d in docs))
    dropped = 0
    for name, docs in train.items():
        keep = []
        for d in docs:
            s = shingles(d)
            if s and len(s & unseen) > 0.1 * len(s):
                dropped += 1
            else:
                keep.append(d)
        train[name] = keep

    def encode(docs):
        return [np.array(e.ids, dtype=np.int64) for e in tok.encode_batch(docs)]

    train = {n: encode(d) for n, d in train.items()}
    held = {n: encode(d) for n, d in held.items()}
    info = {
        "train_tokens": {n: sum(map(len, d)) for n, d in train.items()},
        "held_tokens": {n: sum(map(len, d)) for n, d in held.items()},
        "train_docs": {n: len(d) for n, d in train.items()},
        "held_docs": {n: len(d) for n, d in held.items()},
        "dropped_docs": dropped,
    }
    return train, held, info


class Rows:
    """Which of the 50,257 ids share an embedding row.

    An id that occurs at least `min_count` times in the training text has a row of its own. The
    rarer ones share one row per class: those that occur a few times, and those never seen.
    """

    def __init__(self, train, min_count):
        count = np.zeros(VOCAB, dtype=np.int64)
        for docs in train.values():
            for d in docs:
                count += np.bincount(d, minlength=VOCAB)
        own = [i for i in range(VOCAB) if count[i] >= min_count or i == EOT]
        self.row_of = np.full(VOCAB, -1, dtype=np.int64)
        self.row_of[own] = np.arange(len(own))
        self.n_own = len(own)
        self.multiplicity = [1.0] * len(own)
        edges = [0] + [c for c in (1, 3) if c < min_count] + [min_count]
        for low, high in zip(edges, edges[1:]):
            members = (self.row_of < 0) & (count >= low) & (count < high)
            if members.any():
                self.row_of[members] = len(self.multiplicity)
                self.multiplicity.append(float(members.sum()))
        self.covered = count[own].sum() / count.sum()


class Stream:
    """Endless training windows: (inputs, targets, positions), each [batch, length]."""

    def __init__(self, train, row_of, seed):
        self.rng = np.random.default_rng(seed)
        self.docs = {n: [row_of[d] for d in docs] for n, docs in train.items()}
        self.eot = row_of[EOT]
        self.left = 0

    def _shuffle(self):
        rng, picked = self.rng, []
        for name, docs in self.docs.items():
            weight = SOURCES[name]
            for d in docs:
                picked += [d] * (int(weight) + (rng.random() < weight % 1))
        parts, starts, at = [], [], 0
        for i in rng.permutation(len(picked)):
            parts += [picked[i], [self.eot]]
            at += len(picked[i]) + 1
            starts.append(at)
        self.ids = np.concatenate(parts)
        self.starts = np.array(starts[:-1])
        self.left = len(self.ids)

    def batch(self, size, length):
        if self.left <= 0:
            self._shuffle()
        self.left -= size * length
        rng = self.rng
        x = np.empty((size, length + 1), dtype=np.int64)
        first = np.zeros(size, dtype=np.int64)
        for b in range(size):
            s = rng.integers(len(self.ids) - length - 1)
            offset = rng.integers(1024 - length + 1)
            if rng.random() < 0.4:  # begin at a document, as a prompt does
                i = np.searchsorted(self.starts, s)
                if i < len(self.starts) and self.starts[i] < min(s + length, len(self.ids) - length - 1):
                    s = self.starts[i] - (rng.random() < 0.5)  # with <|endoftext|> before it, or not
                    offset *= rng.random() < 0.5
            x[b] = self.ids[s : s + length + 1]
            first[b] = offset
        return x[:, :-1], x[:, 1:], first[:, None] + np.arange(length)
