"""GPT-2 for training on a CPU: parameter names and layouts are Hugging Face's GPT2LMHeadModel.

The matrix products run in bfloat16 (fast on CPUs that have AMX); weights, the residual stream,
the softmaxes and the loss stay in float32.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv1D(nn.Module):
    """GPT-2's linear layer: weight is [inputs, outputs]."""

    def __init__(self, n_in, n_out, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * std)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        dt = x.dtype
        return torch.addmm(self.bias.to(dt), x, self.weight.to(dt))


class Attention(nn.Module):
    def __init__(self, c, heads, std, depth):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(c, 3 * c, std)
        self.c_proj = Conv1D(c, c, std / math.sqrt(2 * depth))

    def forward(self, x, b, t, mask):
        qkv = self.c_attn(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, b * self.heads, t, -1)
        scores = torch.baddbmm(mask.to(x.dtype), q, k.mT, alpha=1 / math.sqrt(q.shape[-1]))
        y = (scores.softmax(-1) @ v).view(b, self.heads, t, -1)
        return self.c_proj(y.transpose(1, 2).reshape(b * t, -1))


class MLP(nn.Module):
    def __init__(self, c, std, depth):
        super().__init__()
        self.c_fc = Conv1D(c, 4 * c, std)
        self.c_proj = Conv1D(4 * c, c, std / math.sqrt(2 * depth))

    def forward(self, x):
        return self.c_proj(gelu_new(self.c_fc(x)))


def gelu_new(x):
    """GPT-2's GELU, 0.5 x (1 + tanh(u)), written as x sigmoid(2u): exp is cheaper than tanh."""
    f = x.float()
    return (f * torch.sigmoid(1.5957691216 * f * (1 + 0.044715 * f * f))).to(x.dtype)


def dropout(x, p, training):
    """Like F.dropout, with eight one-byte random numbers from each 64-bit one: much faster here."""
    if not training or p == 0:
        return x
    drop = round(256 * p)
    noise = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    keep = noise.view(torch.uint8)[: x.numel()].view(x.shape) >= drop
    return x * (keep.to(x.dtype) * (256 / (256 - drop)))


class Block(nn.Module):
    def __init__(self, c, heads, std, depth):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c)
        self.attn = Attention(c, heads, std, depth)
        self.ln_2 = nn.LayerNorm(c)
        self.mlp = MLP(c, std, depth)

    def forward(self, x, b, t, mask, drop, dt):
        x = x + dropout(self.attn(self.ln_1(x).to(dt), b, t, mask).float(), drop, self.training)
        return x + dropout(self.mlp(self.ln_2(x).to(dt)).float(), drop, self.training)


class GPT2(nn.Module):
    def __init__(self, layers, c, heads, multiplicity, dropout=0.0, positions=1024, std=0.02):
        super().__init__()
        self.drop = dropout
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(len(multiplicity), c),
                "wpe": nn.Embedding(positions, c),
                "h": nn.ModuleList(Block(c, heads, 1 / math.sqrt(3 * c), layers) for _ in range(layers)),
                "ln_f": nn.LayerNorm(c),
            }
        )
        nn.init.normal_(self.transformer["wte"].weight, std=std)
        nn.init.normal_(self.transformer["wpe"].weight, std=std / 2)
        # A row that stands for m ids counts m times in the softmax over 50,257.
        self.register_buffer("log_m", torch.tensor(multiplicity).log(), persistent=False)

    def hidden(self, ids, positions, dt=torch.bfloat16):
        tr, (b, t) = self.transformer, ids.shape
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = dropout(tr["wte"](ids) + tr["wpe"](positions), self.drop, self.training).view(b * t, -1)
        for block in tr["h"]:
            run = block if self.training else block.forward  # the latter is never compiled
            x = run(x, b, t, mask, self.drop, dt)
        return tr["ln_f"](x)

    def forward(self, ids, positions, targets):
        """Mean loss in nats per token, over all 50,257 ids."""
        h = self.hidden(ids, positions)
        return TiedLoss.apply(h, self.transformer["wte"].weight, self.log_m, targets.reshape(-1))

    @torch.no_grad()
    def losses(self, ids, positions, targets):
        """The loss of every token, in float32."""
        h = self.hidden(ids, positions, torch.float32)
        logits = h @ self.transformer["wte"].weight.T
        t = targets.reshape(-1, 1)
        return torch.logsumexp(logits + self.log_m, -1) - logits.gather(1, t)[:, 0]


class TiedLoss(torch.autograd.Function):
    """Mean cross-entropy against the embedding rows, some tokens at a time.

    The gradients are computed on the way forward, so that the logits of the whole batch are never
    held, and the big matrix is passed over only twice between the products: with p = exp(logits)
    and z = its row sums, d loss/d logits = p / z - onehot(target), and both terms are applied
    to the small sides of the products. Needs |logits| < 80, which they always are.
    """

    @staticmethod
    def forward(ctx, h, w, log_m, targets, chunk=4096):
        n, own = len(targets), int((log_m == 0).sum())
        wb, hb, m = w.bfloat16(), h.bfloat16(), log_m[own:].exp().bfloat16()
        w1 = F.pad(wb, (0, 32), value=1.0)  # columns of ones: the product then also sums the rows
        loss, dh, dw = 0.0, torch.empty_like(h), torch.zeros_like(w.T)
        for i in range(0, n, chunk):
            x, t = hb[i : i + chunk], targets[i : i + chunk]
            p = (x @ wb.T).exp_()
            p[:, own:] *= m
            d = (p @ w1).float()
            z = d[:, -1:]
            loss += z.log().sum()
            dh[i : i + chunk] = d[:, :-32] / z
            dw += ((x / z).bfloat16().T @ p).float()
        dw, wt = dw.T.contiguous(), w[targets]
        loss -= (h * wt).sum()
        dh -= wt
        dw.index_add_(0, targets, h, alpha=-1)
        ctx.save_for_backward(dh.div_(n), dw.div_(n))
        return loss / n

    @staticmethod
    def backward(ctx, up):
        dh, dw = ctx.saved_tensors
        return dh * up, dw * up, None, None, None
