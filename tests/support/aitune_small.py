"""What NVIDIA AITune answers for the small model of linear layers, eager against inductor: one JSON line.

    python aitune_small.py CACHE

The strategy is AITune's default, MaxThroughputStrategy, at one batch size; CACHE is the folder of inductor. The caller
times it, import included.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["AITUNE_CACHE_DIR"] = tempfile.mkdtemp(prefix="aitune-small-")  # read when aitune is imported
os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1]
sys.path.append(str(Path(__file__).resolve().parents[1] / "trials"))

from aitune_stubs import stub_missing

STUBBED = stub_missing()

import aitune  # noqa: E402
import aitune.torch as ait  # noqa: E402
import aitune.torch.backend as candidates  # noqa: E402
from small_model import linear  # noqa: E402

module, inputs = linear()
strategy = ait.MaxThroughputStrategy(backends=[candidates.TorchEagerBackend(), candidates.TorchInductorJitBackend()])
wrapped = ait.Module(module, "small", strategy=strategy)
ait.tune(wrapped, [inputs["input"][0]], batch_sizes=[len(inputs["input"])], device="cpu")
(tuned,) = json.loads(ait.config.tuning_data_output_path.read_bytes())["modules"]
(graph,) = tuned["graphs"]
print(json.dumps({"version": aitune.__version__, "stubbed": STUBBED, "selected": graph["selected_backend"]}))
