"""All training happens in a child process. in_a_child.py fork|forkserver|spawn|os.fork|torch"""

import multiprocessing as mp
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(rank, name):
    torch.manual_seed(5 + rank)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        for (x,) in DataLoader(TensorDataset(torch.randn(28, 8)), batch_size=4, shuffle=True, num_workers=rank % 2):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with open(f"{name}.txt", "w") as file:
        print(repr(loss.item()), file=file)
    torch.save(model.state_dict(), f"{name}.pt")


def main(how):
    if how == "torch":
        torch.multiprocessing.spawn(train, args=("rank",), nprocs=1)
    elif how == "os.fork":
        pid = os.fork()
        if pid == 0:
            train(0, "forked")
            sys.exit(0)
        print(os.waitpid(pid, 0)[1])
    else:
        process = mp.get_context(how).Process(target=train, args=(1, how))  # with a loader's worker below it
        process.start()
        process.join()
        print(process.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
