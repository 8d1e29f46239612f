"""Work on tensors of fixed address, captured once as a CUDA graph and replayed from then on."""

from collections.abc import Callable

import torch


class Graphed:
    """Calls `work` as it is a few times, then captures it and replays the capture.

    `work` must read and write tensors that stay where they are: its inputs are filled in place before each call. The
    first calls are real ones, on the stream of the capture: libraries choose their algorithms and optimizers make their
    buffers there.
    """

    def __init__(self, work: Callable[[], None], *, warmup: int = 3) -> None:
        self._work = work
        self._warmup = warmup
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do the work once."""
        if self._graph is None and self._warmup > 0:
            self._warmup -= 1
            self._aside()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # thread_local: a loader may copy images to the device from a thread of its own meanwhile.
            with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
                self._work()  # recorded, not done
        self._graph.replay()

    def _aside(self) -> None:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._work()
        current.wait_stream(self._stream)
