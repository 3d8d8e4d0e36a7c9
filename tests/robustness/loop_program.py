"""A generate loop with a cache that grows: one token after another, each a new set of signatures."""

from __future__ import annotations

from collections.abc import Callable

import torch

STEPS = 4


class Attention(torch.nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x_TD: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys = torch.cat([keys, self.key(x_TD)])
        values = torch.cat([values, self.value(x_TD)])
        weights = torch.softmax(self.query(x_TD) @ keys.T / 4.0, -1)
        return self.out(weights @ values), keys, values


class Speaker(torch.nn.Module):
    def __init__(self, words: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embed, self.attend = torch.nn.Embedding(words, width), Attention(width)
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words)

    def speak(self, prompt: torch.Tensor) -> dict[str, torch.Tensor]:
        keys = values = torch.zeros(0, 16)
        ids, tokens, logits = prompt, [], []
        for _ in range(STEPS):
            x = self.embed(ids)
            attended, keys, values = self.attend(x, keys, values)
            logits.append(self.head(self.norm(x + attended))[-1])
            ids = logits[-1].argmax(-1, keepdim=True)
            tokens.append(ids)
        return {"tokens": torch.cat(tokens), "logits": torch.stack(logits)}


def make() -> Callable[[], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Speaker().eval()
    prompt = torch.tensor([3, 1, 4])
    return lambda: model.speak(prompt)
