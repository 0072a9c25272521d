"""Write the model card from what evaluate.py measured.

    python card.py MODEL_FOLDER RUN_FOLDER REPORT.json      (writes MODEL_FOLDER/README.md)
"""

import gzip
import json
import sys
from pathlib import Path

import torch

SOURCES = {
    "tinystories_combined": ("TinyStories (Eldan and Li 2023), 6,366 short synthetic children's stories", "CDLA-Sharing-1.0"),
    "fairytaleqa_stories": ("FairytaleQA, 278 fairy tales", "Apache-2.0; the tales are in the public domain"),
    "andersen_fairy_tales_en": ("H. C. Andersen's fairy tales in English, from the R package hcandersenr", "MIT; the tales are in the public domain"),
    "pratham_books_en": ("Picture books of Pratham Books (StoryWeaver)", "CC BY"),
    "african_storybook_en": ("Picture books of the African Storybook", "CC BY"),
    "tinyshakespeare": ("Shakespeare's plays (\"tiny Shakespeare\")", "public domain"),
}


def main():
    model, run, report = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())
    c = torch.load(run / "checkpoint.pt", weights_only=False)
    a, m = c["arguments"], c["multiplicity"]
    log = [json.loads(line) for line in open(run / "log.jsonl")]
    trained = sum(w.numel() for n, w in c["model"].items())
    width, layers = a["width"], a["layers"]
    stored = trained + (50257 - len(m)) * width
    size = {n: (model / n).read_bytes() for n in ("model.safetensors", "tokenizer.json")}
    packed = {n: len(gzip.compress(b, 6)) for n, b in size.items()}
    own = sum(x == 1 for x in m)
    info, held = report["info"], report["held_out"]

    data_rows = "\n".join(
        f"| {title} | {licence} | {info['train_docs'][k]:,} | {info['train_tokens'][k]:,} | {held[k]['tokens']:,} | {held[k]['loss']:.3f} |"
        for k, (title, licence) in SOURCES.items()
    )
    total = sum(info["train_tokens"].values())
    curve = [e for e in log if "held_out_average" in e and "held_out" not in e]
    weight = {k: held[k]["tokens"] / held["mix"]["tokens"] for k in SOURCES}
    curve_rows = "\n".join(
        f"| {e['tokens'] / 1e6:.2f} M | {e['minutes']:.0f} | {sum(e['held_out_average'][k] * w for k, w in weight.items()):.3f}"
        f" | {e['held_out_average']['tinystories_combined']:.3f} |"
        for e in curve
    )
    # training loss, about a dozen points over the run
    losses = [e for e in log if "loss" in e and e["step"] >= 50]
    pick = losses[:: max(1, len(losses) // 12)]
    train_rows = " ".join(f"{e['tokens'] / 1e6:.1f} M: {e['loss']:.2f};" for e in pick).rstrip(";")
    samples = "".join(
        f"\n**{title}**\n\n" + "".join("```text\n" + s + "\n```\n\n" for s in report[key])
        for key, title in (("greedy", "Greedy (no sampling)"), ("sampled", "Temperature 0.8, top_k 40, seed 1"))
    )
    position_rows = "\n".join(
        f"| {k.replace('positions ', '')} | {v} |" for k, v in report["by_position"].items() if k.startswith("positions")
    )
    placed = "; ".join(
        f"position {k.rsplit(' ', 1)[1]}: {v}" for k, v in report["by_position"].items() if k.startswith("first")
    )
    first = {k.rsplit(" ", 1)[1]: v for k, v in report["by_position"].items() if k.startswith("first")}
    late = first["900"] - first["50"]
    o = report["overlap"]
    extra = sys.argv[4] if len(sys.argv) > 4 else ""

    text = f"""# tiny: a small GPT-2 that writes children's stories

{extra}This is **not** one of OpenAI's GPT-2 models. It has the same architecture, the same file layout and the same tokenizer
(so the token ids are GPT-2's own), but it is {124_439_808 / trained:.0f} times smaller than the smallest of them and was trained on a CPU
from {total / 1e6:.1f} million tokens of simple English, for this demo, so that the page works on its first run and without a network.

| | |
|---|---|
| architecture | GPT-2 (`GPT2LMHeadModel`): {layers} layers, width {width}, {a['heads']} heads of {width // a['heads']}, 1,024 positions, 50,257 ids, tied embeddings, `gelu_new` |
| parameters | {trained:,} trained, {stored:,} stored |
| files | `model.safetensors` {len(size['model.safetensors']):,} bytes (f16), {packed['model.safetensors']:,} after gzip -6; `tokenizer.json` {len(size['tokenizer.json']):,} bytes, {packed['tokenizer.json']:,} after gzip -6; together {sum(packed.values()):,} |
| training | {c['step']:,} steps, {c['tokens']:,} tokens seen, {c['spent'] / 3600:.2f} hours on a busy 2-core CPU |
| held-out loss | **{held['mix']['loss']:.3f}** nats per token on the whole mix, **{held['tinystories_combined']['loss']:.3f}** on the stories; over every token, rare ones too |
| licence of the weights | MIT OR Apache-2.0, like the project |

It loads unchanged in Hugging Face `transformers`:

```python
from transformers import AutoTokenizer, GPT2LMHeadModel
model = GPT2LMHeadModel.from_pretrained("www/models/tiny")
tok = AutoTokenizer.from_pretrained("www/models/tiny")
```

## Why trained and stored parameters differ

{own:,} ids that occur at least {a['min_count']} times in the training text have an embedding row of their own. The other {50257 - own:,}
share {len(m) - own} rows, one per class of frequency ({", ".join(f"{int(x):,} ids" for x in m[own:])}), each counted with its number of ids in
the softmax. The stored table has all 50,257 rows, so the file is a plain GPT-2. A word whose tokens are rare reads as
"some rare word" to this model, and it never writes one. The weights are rounded to 8 bits of mantissa, which costs no measurable
loss and makes the gzip copy smaller.

## Data

Cleaned (typographic quotes and dashes made plain, mis-decoded characters repaired, exact duplicates removed). 3 % of the documents of each source
are held out, chosen with a fixed seed, and training documents that share more than a tenth of their ten-word runs with
them were dropped ({info['dropped_docs']}). Losses are nats per token over every token, each document read from its start in windows of 1,024.

| source | licence | documents | training tokens | held-out tokens | held-out loss |
|---|---|---|---|---|---|
{data_rows}
| mix (all of the above) | | {sum(info['train_docs'].values()):,} | {total:,} | {held['mix']['tokens']:,} | {held['mix']['loss']:.3f} |

The mix misses this project's aim of 3.5 nats (the stories were given more weight in training). Weighted by how often training draws from each source, the mix is at {held['mix as trained']['loss']:.3f}. Per epoch a TinyStories document is seen 1.4 times on average, a piece of Shakespeare 0.4 times, the others once. The
authors of the CC BY picture books are listed by [African Storybook](https://www.africanstorybook.org) and
[StoryWeaver](https://storyweaver.org.in). The texts themselves are not part of this project.

## Training

Muon (rate {a['lr_matrix']}, momentum 0.95, weight decay {a['decay']}) for the matrices of the blocks; AdamW (rate {a['lr_rest']}, half of it for positions; betas 0.9, 0.98) for the rest.
{a['workers']} workers with {a['tokens']:,} tokens each per step; windows of 256 tokens at random positions, and 8 % (20 % towards the end) of 1,024. After 100 steps
of warm-up the rate falls linearly with the time used. Dropout {a['dropout']}. bfloat16 products, float32 elsewhere. The scripts are in `tools/train_tiny`.
One deviation, because the settings were changed during the run: the first 559 steps ran at the constant rates 0.02 and 0.003 with 15 % long windows.

Held-out loss of the running mean of the weights on the way (from about the first 2,000 held-out tokens of each source, weighted as in the
mix, in windows of 512; so not quite comparable with the final numbers above):

| tokens seen | minutes | mix | stories |
|---|---|---|---|
{curve_rows}

Training loss (tokens seen: nats): {train_rows}.

## Early and late positions

The late positions are trained too, if a little less well than the first ones ({late:.2f} nats at position 900).

Held-out stories in a row, in {report['by_position']['windows']} windows of 1,024 tokens, nats per token by position in the window:

| positions | loss |
|---|---|
{position_rows}

The first 100 tokens of each held-out story, with nothing before them, placed at: {placed}.

## Ten unedited samples

Sixty new tokens each, five fixed prompts.
{samples}
After 900 tokens of other stories, the same prompt (seed 1):

```text
{report['after_900_tokens']}
```

The longest run of words that any of the ten shares with the training text is {o['words']} words ("{o['text']}");
the mean over the ten of the longest run is {o['mean_words']} words.

## What it cannot do

It knows a few thousand words and the world of children's stories. It does not answer questions, does not follow instructions,
knows no facts, and cannot count, calculate or write programs; outside stories it writes words that fit only grammatically.
Characters and objects change between sentences, and who did what is often confused. It has learned the habits of its
sources, old fairy tales among them, with their stereotypes and cruelties. It was not made safe for any use beyond
showing how GPT-2 works.
"""
    (model / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
