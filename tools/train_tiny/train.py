"""Train the small GPT-2 of the demo on a CPU.

    python train.py DATA_FOLDER RUN_FOLDER --minutes 110

Several single-threaded processes each work through their own windows and average their gradients
(on a shared machine this is much faster than one process with several threads). The schedule
follows the clock: learning rates reach zero when the minutes are used up. Stop it and start
it again with the same RUN_FOLDER and it goes on from its last checkpoint.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import data
from model import GPT2


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", help="folder with text/ and tokenizer/")
    p.add_argument("run", help="folder for checkpoints and the log")
    p.add_argument("--minutes", type=float, default=110, help="time budget over all restarts")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--heads", type=int, default=3)
    p.add_argument("--min-count", type=int, default=10, help="rarer ids share a row")
    p.add_argument("--tokens", type=int, default=2048, help="per worker and step")
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--lr-matrix", type=float, default=0.015)
    p.add_argument("--lr-rest", type=float, default=0.002)
    p.add_argument("--no-compile", action="store_true", help="do not fuse the blocks with torch.compile")
    p.add_argument("--decay", type=float, default=0.02, help="weight decay of the matrices")
    return p.parse_args()


class Muon:
    """Momentum whose step is made orthogonal (Jordan et al. 2024), for the hidden matrices."""

    def __init__(self, matrices, decay):
        # Equal shapes are stepped together; Q, K and V are matrices of their own.
        self.params, self.decay, views = list(matrices), decay, {}
        for i, p in enumerate(self.params):
            parts = 3 if p.shape[1] == 3 * p.shape[0] else 1
            for j in range(parts):
                shape = (p.shape[0], p.shape[1] // parts)
                views.setdefault(tuple(sorted(shape)), []).append((i, j, parts))
        self.groups = views
        self.momentum = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, lr, beta=0.95):
        for p, m in zip(self.params, self.momentum):
            m.lerp_(p.grad, 1 - beta)
            p.grad.lerp_(m, beta)  # Nesterov
            p.mul_(1 - lr * self.decay)
        # Every worker makes its share of the updates, then they are exchanged.
        rank, workers = dist.get_rank(), dist.get_world_size()
        updates = []
        for members in self.groups.values():
            mine = [turn(part(self.params[i].grad, j, n)) for i, j, n in members[rank::workers]]
            updates.append(orthogonal(torch.stack(mine).bfloat16()))
        sent = torch.cat([u.flatten() for u in updates]).view(torch.uint8)
        received = [torch.empty_like(sent) for _ in range(workers)]
        dist.all_gather(received, sent)
        for r, flat in enumerate(received):
            split = flat.view(torch.bfloat16).split([u.numel() for u in updates])
            for members, like, u in zip(self.groups.values(), updates, split):
                for (i, j, n), update in zip(members[r::workers], u.view_as(like).float()):
                    w = part(self.params[i], j, n)
                    grow = max(1.0, w.shape[1] / w.shape[0]) ** 0.5
                    w.add_(update.T if w.shape[0] > w.shape[1] else update, alpha=-lr * grow)


def part(w, j, n):
    return w.chunk(n, dim=1)[j]


def turn(w):
    return w.T if w.shape[0] > w.shape[1] else w


def orthogonal(g):
    """Newton-Schulz steps towards the nearest orthogonal matrices."""
    g = g / (g.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        a = g @ g.mT
        g = 3.4445 * g + (-4.7750 * a + 2.0315 * (a @ a)) @ g
    return g


def rate(step, progress):
    """The share of the full learning rate: warm-up, a plateau, linearly to zero."""
    return min((step + 1) / 100, 1.0, (1 - progress) / 0.8)


@torch.no_grad()
def held_out_loss(model, held, rows, limit, window=512):
    """Mean loss per source; each document is read from position 0 after <|endoftext|>."""
    model.eval()
    out = {}
    for name, docs in held.items():
        total = n = 0
        for d in docs:
            if n >= limit:
                break
            ids = torch.from_numpy(rows.row_of[[data.EOT, *d, data.EOT]])
            for i in range(0, len(ids) - 1, window):
                x, y = ids[i : i + window][None], ids[i + 1 : i + window + 1][None]
                x = x[:, : y.shape[1]]
                total += model.losses(x, torch.arange(x.shape[1])[None], y).sum().item()
                n += y.shape[1]
        out[name] = (total / n, n)
    model.train()
    return out


def worker(rank, a):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29500 + os.getppid() % 1000))
    dist.init_process_group("gloo", rank=rank, world_size=a.workers)
    run = Path(a.run)
    train, held, info = data.load(a.data)
    rows = data.Rows(train, a.min_count)
    torch.manual_seed(data.SEED)
    model = GPT2(a.layers, a.width, a.heads, rows.multiplicity, a.dropout)
    with torch.no_grad():  # rare rows start small, so that unseen words start neutral
        model.transformer["wte"].weight[rows.n_own :] *= 0.1

    if not a.no_compile:
        for block in model.transformer["h"]:
            block.compile(dynamic=False)

    params = dict(model.named_parameters())
    matrices = [n for n, p in params.items() if ".h." in n and p.ndim == 2]
    muon = Muon([params[n] for n in matrices], a.decay)
    adam = torch.optim.AdamW(
        [
            {"params": [params["transformer.wte.weight"]], "scale": 1.0, "weight_decay": 0.01},
            {"params": [params["transformer.wpe.weight"]], "scale": 0.5, "weight_decay": 0.01},
            {"params": [p for p in params.values() if p.ndim == 1], "scale": 1.0, "weight_decay": 0.0},
        ],
        lr=a.lr_rest, betas=(0.9, 0.98), eps=1e-10,
    )
    average = {n: p.detach().clone() for n, p in params.items()}  # running mean of the weights
    step, tokens, spent = 0, 0, 0.0
    checkpoint = run / "checkpoint.pt"
    if checkpoint.exists():
        c = torch.load(checkpoint, weights_only=False)
        model.load_state_dict(c["model"])
        average = c["average"]
        adam.load_state_dict(c["adam"])
        muon.momentum = c["momentum"]
        step, tokens, spent = c["step"], c["tokens"], c["spent"]
    stream = data.Stream(train, rows.row_of, (data.SEED, rank, step))
    torch.manual_seed(1000 * step + rank)

    flat = torch.zeros(sum(p.numel() for p in params.values()))
    views, at = [], 0
    for p in params.values():  # every gradient is a view of one array, averaged in one go
        views.append(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
        p.grad = views[-1]

    def log(**what):
        if rank == 0:
            line = json.dumps({"step": step, "tokens": tokens, "minutes": round(spent / 60, 2), **what})
            print(line, flush=True)
            with open(run / "log.jsonl", "a") as f:
                f.write(line + "\n")

    def save():
        torch.save(
            {
                "model": model.state_dict(), "average": average, "adam": adam.state_dict(),
                "momentum": muon.momentum, "step": step, "tokens": tokens, "spent": spent,
                "arguments": vars(a), "multiplicity": rows.multiplicity, "row_of": rows.row_of,
                "info": info,
            },
            run / "checkpoint.tmp",
        )
        os.replace(run / "checkpoint.tmp", checkpoint)

    def evaluate(weights, limit):
        keep = {n: p.detach().clone() for n, p in params.items()}
        with torch.no_grad():
            for n, p in params.items():
                p.copy_(weights[n])
            parts = held_out_loss(model, held, rows, limit)
            for n, p in params.items():
                p.copy_(keep[n])
        mix = sum(l * n for l, n in parts.values()) / sum(n for _, n in parts.values())
        return {"mix": round(mix, 4), **{k: round(l, 4) for k, (l, _) in parts.items()}}

    if rank == 0 and step == 0:
        log(parameters=sum(p.numel() for p in params.values()), own_rows=rows.n_own,
            covered=round(rows.covered, 4), multiplicity=rows.multiplicity[rows.n_own :], **info)
    lengths = (256, 1024)
    choose = torch.Generator().manual_seed(step)  # the same on every worker
    last = time.time()
    recent, next_eval, next_save = [], spent + 900, spent + 180
    while True:
        clock = torch.tensor([spent + time.time() - last if rank == 0 else 0.0])
        dist.all_reduce(clock)
        spent, last = clock.item(), time.time()
        progress = spent / (60 * a.minutes)
        if progress >= 1:
            break
        shares = (0.92, 0.08) if progress < 0.75 else (0.8, 0.2)
        length = lengths[torch.multinomial(torch.tensor(shares), 1, generator=choose).item()]
        x, y, pos = (torch.from_numpy(v) for v in stream.batch(a.tokens // length, length))
        flat.zero_()
        loss = model(x, pos, y)
        loss.backward()
        dist.all_reduce(flat)
        flat /= a.workers
        r = rate(step, progress)
        for g in adam.param_groups:
            g["lr"] = a.lr_rest * g["scale"] * r
        muon.step(a.lr_matrix * r, beta=min(0.95, 0.85 + step / 3000))
        adam.step()
        step += 1
        tokens += a.tokens * a.workers
        recent = (recent + [loss.item()])[-50:]
        if rank == 0:
            if step % 4 == 0:  # the average reaches over about the last tenth of the steps
                with torch.no_grad():
                    for n, p in params.items():
                        average[n].lerp_(p, min(1.0, 40 / step))
            if step % 50 == 0 or step in (1, 10):
                log(loss=round(sum(recent) / len(recent), 4), rate=round(r, 4))
            if spent > next_eval:
                next_eval = spent + 900
                log(held_out_average=evaluate(average, 2000))
            if spent > next_save:
                next_save = spent + 180
                save()
    if rank == 0:
        save()
        log(held_out=evaluate(params, 2000))
    dist.barrier()


if __name__ == "__main__":
    a = arguments()
    Path(a.run).mkdir(parents=True, exist_ok=True)
    mp.spawn(worker, (a,), nprocs=a.workers)
