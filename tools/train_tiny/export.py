"""Write a checkpoint as a Hugging Face GPT-2 folder: config.json, tokenizer.json, model.safetensors.

    python export.py RUN_FOLDER DATA_FOLDER OUT_FOLDER [--weights average|model]

The compact embedding becomes the full 50,257 rows. Weights are stored in f16, rounded to
`--bits` bits of mantissa (training multiplies in bfloat16, which has 7): the zero bits cost nothing
after gzip.
"""

import argparse
import gzip
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from data import EOT, VOCAB


def round_mantissa(x, bits):
    """float32 -> f16 with only `bits` explicit mantissa bits, to nearest."""
    mantissa, exponent = torch.frexp(x)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp(torch.round(mantissa * scale) / scale, exponent).half()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run")
    p.add_argument("data")
    p.add_argument("out")
    p.add_argument("--weights", choices=["average", "model"], default="model")
    p.add_argument("--bits", type=int, default=8)
    a = p.parse_args()

    c = torch.load(Path(a.run) / "checkpoint.pt", weights_only=False)
    args, weights = c["arguments"], dict(c[a.weights])
    rows = torch.from_numpy(c["row_of"])
    weights["transformer.wte.weight"] = weights["transformer.wte.weight"][rows]
    assert weights["transformer.wte.weight"].shape == (VOCAB, args["width"])
    tensors = {n: round_mantissa(w.detach(), a.bits).contiguous() for n, w in weights.items()}

    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "vocab_size": VOCAB,
        "n_positions": 1024,
        "n_ctx": 1024,
        "n_embd": args["width"],
        "n_layer": args["layers"],
        "n_head": args["heads"],
        "n_inner": None,
        "layer_norm_epsilon": 1e-05,
        "attn_pdrop": 0.0,
        "embd_pdrop": args["dropout"],
        "resid_pdrop": args["dropout"],
        "initializer_range": 0.02,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "bos_token_id": EOT,
        "eos_token_id": EOT,
        "dtype": "float16",
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer = json.loads((Path(a.data) / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(text + "\n", encoding="utf-8")

    total = 0
    for name in ("model.safetensors", "tokenizer.json"):
        raw = (out / name).read_bytes()
        packed = len(gzip.compress(raw, 6))
        total += packed
        print(f"{name}: {len(raw):,} bytes, {packed:,} after gzip -6")
    print(f"together {total:,} after gzip -6; step {c['step']}, {c['tokens']:,} tokens, "
          f"{c['spent'] / 60:.1f} minutes, {sum(w.numel() for w in c['model'].values()):,} parameters trained, "
          f"{sum(t.numel() for t in tensors.values()):,} stored")


if __name__ == "__main__":
    main()
