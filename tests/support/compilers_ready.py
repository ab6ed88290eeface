"""Imported by the fork server of all tests: what inductor registers and imports at a process's first compilation."""

import torch
from torch._inductor.fx_passes import freezing_patterns, joint_graph, post_grad, pre_grad

joint_graph.lazy_init(torch.device("cpu"))
for passes in (pre_grad, post_grad, freezing_patterns):
    passes.lazy_init()  # type: ignore[attr-defined]
