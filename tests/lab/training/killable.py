"""A process that imports torch once and forks a child for each run, so that killing children is cheap.

Reads one JSON request a line: {"out": folder, "kill": null | ["step", n] | ["call", n]}. The child trains, resuming
what lies in the folder, and kills itself with SIGKILL after step n, or in the middle of the n-th call that touches a
file. The answer says how the child ended, where it had started, and the last checkpoint that it knew to be written.
"""

import json
import os
import signal
import sys

import torch

from orthosparse.lab.training import Callback, Recipe, Run, checkpoint, saving, train

RECIPE = Recipe(epochs=2, lr=0.2, batch=64, dense_init="orthogonal")
MLP = {"depth": 3, "width": 24}
CONFIG = Run("mlp", "digits", RECIPE, "tanh", MLP, density=0.3, scheme="base", dynamic="rigl", every=4)
EVERY = 3


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Report(Callback):
    def __init__(self, pipe, kill):
        self.pipe, self.kill = pipe, kill

    def on_start(self, state):
        os.write(self.pipe, f"start {state.steps_done}\n".encode())

    def on_step(self, state):
        os.write(self.pipe, f"step {state.steps_done}\n".encode())
        if self.kill and self.kill[0] == "step" and state.steps_done == self.kill[1]:
            die()


class Fatal:
    """Counts the calls that touch files, half-does the n-th of them, and dies."""

    def __init__(self, fatal):
        self.left = fatal

    def counted(self, call):
        def wrapper(*arguments, **named):
            self.left -= 1
            if self.left == 0:
                die()
            return call(*arguments, **named)

        return wrapper


class TornFile:
    """A file whose write may end in the middle."""

    def __init__(self, file, fatal):
        self.file, self.fatal = file, fatal

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *problem):
        return self.file.__exit__(*problem)

    def write(self, data):
        self.fatal.left -= 1
        if self.fatal.left == 0:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            die()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def tear(fatal):
    opened = checkpoint.Path.open

    def open_torn(path, mode="r", *rest, **named):
        file = opened(path, mode, *rest, **named)
        return TornFile(file, fatal) if mode == "wb" else file

    checkpoint.Path.open = open_torn
    checkpoint.Path.replace = fatal.counted(checkpoint.Path.replace)
    checkpoint.Path.unlink = fatal.counted(checkpoint.Path.unlink)
    os.fsync = fatal.counted(os.fsync)


def child(request, pipe):
    kill = request["kill"]
    if kill and kill[0] == "call":
        tear(Fatal(kill[1]))
    written = saving.save

    def save(folder, steps, tree):
        written(folder, steps, tree)
        os.write(pipe, f"saved {steps}\n".encode())

    saving.save = save
    train(
        CONFIG,
        seed=1,
        out=request["out"],
        resume=True,
        checkpoint_steps=EVERY,
        callbacks=[Report(pipe, kill)],
        device="cpu",
    )


def serve(request):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(request, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        events = [line.split() for line in pipe]
    _, status = os.waitpid(pid, 0)
    last = {name: int(number) for name, number in events}
    return {"code": os.waitstatus_to_exitcode(status), **last}


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(CONFIG, seed=1, device="cpu")  # whatever is imported late is imported before the forks
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
