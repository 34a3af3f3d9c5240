"""A small training that comes by everything the agent watches; its words choose how it goes on, and how it ends."""

import hashlib
import multiprocessing
import sys
import time
from collections import UserDict

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)


def train(net, optimizers, steps, data):
    loader = DataLoader(data, batch_size=4, shuffle=True)
    done = 0
    while done < steps:
        for x, y in loader:
            x = x.to(torch.float32)
            loss = nn.functional.mse_loss(net(x), y.to(torch.float32))
            loss.backward()
            for optimizer in optimizers:
                if done % 9:  # as a scaler leaves out those whose gradients overflowed
                    optimizer.step()
                optimizer.zero_grad()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            done += 1
            if done == 20:
                time.sleep(0.05)  # the script's own line
            seen = loss.item(), x.mean().to(torch.float64).item()
            if done % 10 == 0:
                print(done, *seen)
            if done == steps:
                return


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        print("evaluated", sum(net(x.to(torch.float32)).sum().item() for x, _ in DataLoader(data, batch_size=8)))
    net.train()


def by_hand(models):
    """Batches that no loader gives, and an optimizer of their own; `models`: what is called in each step."""
    updates = torch.optim.SGD(models[0].parameters(), lr=0.01)
    for model in models:
        model(torch.randn(4, 6)).sum().backward()
        updates.step()
        updates.zero_grad()


def as_held(rows):
    return UserDict(x=torch.stack([x for (x,) in rows]))  # as tokenizers give them


def in_step(net, optimizer):
    """Two loaders read in step, one of them never trained on before; words, and batches that are dictionaries or hold one."""
    words = DataLoader([{"ids": torch.arange(i, i + 5)} for i in range(32)], batch_size=2)
    table = nn.Embedding(64, 3)
    updates = torch.optim.SGD(table.parameters(), lr=0.1)
    other = DataLoader(TensorDataset(torch.randn(32, 6, dtype=torch.float64)), batch_size=2, collate_fn=as_held)
    for number, (batch, held) in enumerate(zip(words, other, strict=True)):
        (table(batch["ids"]).sum() + net(held["x"].to(torch.float32)).sum()).backward()
        updates.step()
        if number:  # the second time the other of the two steps comes before the batches that are looked at closely
            optimizer.step()
    print("words", table.weight.sum().item())


def compiled(net, optimizer, data):
    fast = torch.compile(net, backend="eager")
    by_hand([*[net] * 4, *[fast] * 2])  # first called in the midst of it
    for x, _ in DataLoader(data, batch_size=8):
        fast(x.to(torch.float32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch._dynamo.reset()
    fast(torch.ones(2, 6))


def in_a_child():
    torch.manual_seed(1)
    net = nn.Linear(6, 1)
    train(net, [torch.optim.SGD(net.parameters(), lr=0.1)], 10, TensorDataset(torch.randn(16, 6), torch.randn(16, 1)))


def end(how, net):
    if how == "two-devices":
        inputs = [torch.zeros(1)]  # noqa: F841
        raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices")
    if how == "out-of-memory":
        raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
    if how == "child":
        child = multiprocessing.get_context("fork").Process(target=in_a_child)
        child.start()
        child.join()
        print("child", child.exitcode)
    if how == "code":
        sys.exit(7)


def main(how):
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    data = TensorDataset(torch.randn(256, 6, dtype=torch.float64), torch.randn(256, 1, dtype=torch.float64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    if torch.cuda.is_initialized():
        torch.cuda.init()
    train(net, [optimizer], 130, data)
    evaluate(net, data)
    torch.save(net.state_dict(), "net.pt")
    by_hand([net] * 9)
    for _ in range(2):
        in_step(net, optimizer)
    if how == "trains":
        train(net, [torch.optim.Adam(net.parameters()), optimizer], 20, data)
        if "compiles" in sys.argv:
            compiled(net, optimizer, data)
    torch.save(net, "whole.pt")
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
    print("learned", digest.hexdigest(), torch.rand(1).item())
    end(how, net)


if __name__ == "__main__":
    main(sys.argv[1])
