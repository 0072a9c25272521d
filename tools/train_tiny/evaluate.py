"""Measure an exported model with Hugging Face transformers, in float32.

    python evaluate.py MODEL_FOLDER DATA_FOLDER [--json OUT] [--golden OUT] [--samples OUT]

Prints the held-out loss over every token, the loss by position, fixed samples and their longest
verbatim overlap with the training text; writes the golden test and more samples if asked.
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer, GPT2LMHeadModel

import data

PROMPTS = [
    "Once upon a time",
    "One day, a little girl named Lily",
    "The king said to the",
    "The little boy was sad because",
    "The future of AI systems engineering is",
]
GOLDEN = [
    "Once upon a time, there was a little",
    "Tom and Lily were playing in the park.",
    "The king said to his daughter",
    "One day, a big dog",
    "Mom said to Tim,",
    "The old woman went to the",
]


@torch.no_grad()
def losses(model, ids, position=0):
    """Nats of each token after the first."""
    x = torch.as_tensor(ids)[None]
    where = torch.arange(position, position + x.shape[1])[None]
    logits = model(input_ids=x, position_ids=where, attention_mask=torch.ones_like(x)).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, x[0, 1:], reduction="none")


def held_out(model, held, window=1024):
    """Per source: (sum of nats, tokens). Documents start after <|endoftext|> and end with it."""
    out = {}
    for name, docs in held.items():
        total, n = 0.0, 0
        for d in docs:
            ids = [data.EOT, *d.tolist(), data.EOT]
            for i in range(0, len(ids) - 1, window - 1):  # every token is predicted exactly once
                loss = losses(model, ids[i : i + window])
                total, n = total + loss.sum().item(), n + len(loss)
        out[name] = (total, n)
    return out


def by_position(model, held):
    """Held-out stories in a row, 1,024 tokens at a time; and the same story at two positions."""
    stream = []
    for d in held["tinystories_combined"]:
        stream += [data.EOT, *d.tolist()]
    rows = [losses(model, stream[i : i + 1024]) for i in range(0, len(stream) - 1024, 1024)][:24]
    rows = torch.stack(rows)
    result = {"windows": len(rows)}
    for a, b in ((0, 25), (25, 75), (75, 150), (150, 300), (300, 500), (500, 700), (700, 850), (850, 950), (950, 1023)):
        result[f"positions {a}-{b}"] = round(rows[:, a:b].mean().item(), 3)
    for start in (0, 50, 900):
        parts = [losses(model, [data.EOT, *d[:100].tolist()], start) for d in held["tinystories_combined"] if len(d) >= 100][:60]
        result[f"first 100 tokens of a story, placed at position {start}"] = round(torch.cat(parts).mean().item(), 3)
    return result


def generate(model, tok, prompt, n, seed=None, context=()):
    ids = torch.tensor([[*context, *tok(prompt).input_ids]])
    if seed is not None:
        torch.manual_seed(seed)
    how = {"do_sample": False} if seed is None else {"do_sample": True, "temperature": 0.8, "top_k": 40}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, pad_token_id=data.EOT, **how)
    return out[0, len(context):].tolist()


@torch.no_grad()
def golden(model, tok, n=24):
    """The three prompts whose greedy choices are the clearest (largest smallest margin)."""
    cases = []
    for prompt in GOLDEN:
        prompt_ids = tok(prompt).input_ids
        ids = generate(model, tok, prompt, n)
        logits = model(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).logits[0]
        top = logits[len(prompt_ids) - 1 : -1].topk(2).values
        cases.append({
            "prompt": prompt,
            "prompt_ids": prompt_ids,
            "new_ids": ids[len(prompt_ids):],
            "new_text": tok.decode(ids[len(prompt_ids):]),
            "margins": [round(m, 4) for m in (top[:, 0] - top[:, 1]).tolist()],
        })
    cases = [c for c in cases if len(c["new_ids"]) == n and data.EOT not in c["new_ids"]]
    return sorted(cases, key=lambda c: -min(c["margins"]))[:3]


def overlap(samples, data_dir):
    """The longest run of words that a sample has in common with the training text."""
    words = lambda t: re.findall(r"[a-z']+", t.lower())
    texts = [d for n in data.SOURCES for d in data.documents(Path(data_dir) / "text" / f"{n}.txt")]
    whole = " | ".join(" " + " ".join(words(t)) + " " for t in texts)
    best, mean = [], 0
    for sample in samples:
        w, longest = words(sample), []
        for i in range(len(w)):
            n = len(longest) + 1
            while i + n <= len(w) and " " + " ".join(w[i : i + n]) + " " in whole:
                longest, n = w[i : i + n], n + 1
        mean += len(longest) / len(samples)
        best = max(best, longest, key=len)
    return {"words": len(best), "text": " ".join(best), "mean_words": round(mean, 1)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("data")
    p.add_argument("--json")
    p.add_argument("--golden")
    p.add_argument("--samples")
    a = p.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)
    model, loaded = GPT2LMHeadModel.from_pretrained(a.model, output_loading_info=True)
    stored = model.dtype
    model = model.float().eval()
    print(f"transformers {transformers.__version__}: {type(model).__name__} stored as {stored}, "
          f"{model.num_parameters():,} parameters; {loaded}")
    _, held, info = data.load(a.data)

    report = {"info": info}
    parts = held_out(model, held)
    report["held_out"] = {n: {"loss": round(s / k, 4), "tokens": k} for n, (s, k) in parts.items()}
    report["held_out"]["mix"] = {
        "loss": round(sum(s for s, _ in parts.values()) / sum(k for _, k in parts.values()), 4),
        "tokens": sum(k for _, k in parts.values()),
    }
    drawn = {n: data.SOURCES[n] * k for n, (_, k) in parts.items()}  # as often as training draws them
    report["held_out"]["mix as trained"] = {
        "loss": round(sum(drawn[n] * s / k for n, (s, k) in parts.items()) / sum(drawn.values()), 4)
    }
    report["by_position"] = by_position(model, held)
    report["greedy"] = [tok.decode(generate(model, tok, q, 60)) for q in PROMPTS]
    report["sampled"] = [tok.decode(generate(model, tok, q, 60, 1)) for q in PROMPTS]
    context = sum(([data.EOT, *d.tolist()] for d in held["tinystories_combined"]), [])[:900]
    report["after_900_tokens"] = tok.decode(generate(model, tok, PROMPTS[0], 60, 1, [*context, data.EOT]))
    report["overlap"] = overlap(report["greedy"] + report["sampled"], a.data)
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if a.json:
        Path(a.json).write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    if a.golden:
        weights = (Path(a.model) / "model.safetensors").read_bytes()
        content = {
            "about": f"Greedy continuations by transformers {transformers.__version__} in float32 from the f16 "
                     "weights of www/models/tiny; margins are top-1 minus top-2 logits of each step.",
            "model_sha256": hashlib.sha256(weights).hexdigest(),
            "cases": golden(model, tok),
        }
        assert len(content["cases"]) == 3 and min(min(c["margins"]) for c in content["cases"]) > 1e-2
        Path(a.golden).parent.mkdir(parents=True, exist_ok=True)
        Path(a.golden).write_text(json.dumps(content, indent=1) + "\n")
        print("smallest margins:", [min(c["margins"]) for c in content["cases"]])
    if a.samples:
        with open(a.samples, "w") as f:
            many = []
            for q in PROMPTS[:3]:
                for seed in range(1, 11):
                    many.append(tok.decode(generate(model, tok, q, 60, seed)))
                    f.write(f"--- {q} | seed {seed}\n{many[-1]}\n\n")
            f.write(f"--- {PROMPTS[4]} | greedy\n{report['greedy'][4]}\n\n--- {PROMPTS[4]} | seed 1\n{report['sampled'][4]}\n\n")
            f.write(f"--- after 900 tokens of other stories: {PROMPTS[0]} | seed 1\n{report['after_900_tokens']}\n\n")
            f.write(f"--- overlap of the 30 samples with the training text\n{json.dumps(overlap(many, a.data))}\n")


if __name__ == "__main__":
    main()
