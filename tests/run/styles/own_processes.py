"""The user's own processes beside training: a Pool that prepares data, a Process that evaluates, a subprocess, a thread."""

import multiprocessing as mp
import subprocess
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 8, generator=generator).tolist()


def evaluate(state, queue):
    model = nn.Linear(8, 1)
    model.load_state_dict(state)
    with torch.no_grad():
        queue.put(model(torch.ones(1, 8)).item())


def main():
    torch.manual_seed(0)
    context = mp.get_context("fork")
    with context.Pool(2) as pool:
        data = torch.tensor(pool.map(prepare, range(4))).view(-1, 8)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ticking = threading.Event()
    clock = threading.Thread(target=ticking.wait, daemon=True)
    clock.start()
    queue = context.Queue()
    for epoch in range(2):
        for (x,) in DataLoader(TensorDataset(data), batch_size=4, shuffle=True, num_workers=1):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        process = context.Process(target=evaluate, args=(model.state_dict(), queue))
        process.start()
        print(epoch, repr(queue.get()))
        process.join()
        print(process.exitcode)
    ticking.set()
    print(subprocess.run([sys.executable, "-c", "print('another', 6 * 7)"], capture_output=True, check=True).stdout)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
