"""What of a worker's environment is stored in records, and that it names no folder."""

from pathlib import Path

import pytest

from bakeoff.process.environment import recorded_environment


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("LD_PRELOAD", "/home/ann/lib/libjemalloc.so.2", "libjemalloc.so.2"),
        ("LD_PRELOAD", "/opt/a b:/usr/lib/libtcmalloc.so  libiomp5.so", "a:b:libtcmalloc.so:libiomp5.so"),
        ("LD_PRELOAD", "", ""),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", "glibc.malloc.hugetlb=1"),
        ("MALLOC_CONF", "background_thread:true", "background_thread:true"),
        ("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1", "dirty_decay_ms:-1"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "AVX2"),
        ("ATEN_CPU_CAPABILITY", "default", "default"),
        ("CUBLASLT_WORKSPACE_SIZE", "4096", "4096"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8", ":4096:8"),
        ("OMP_NUM_THREADS", "2", "2"),
    ],
)
def test_what_affects_numbers_is_recorded(name: str, value: str, stored: str) -> None:
    assert recorded_environment({name: value}) == {name: stored}


@pytest.mark.parametrize(
    "name", ["TORCHINDUCTOR_CACHE_DIR", "CUDA_HOME", "TRITON_CACHE_DIR", "LD_LIBRARY_PATH", "AWS_SECRET", "HOME"]
)
def test_places_and_secrets_are_not(name: str) -> None:
    assert recorded_environment({name: "/home/ann/x"}) == {}


def test_a_value_with_this_users_home_loses_it() -> None:
    assert recorded_environment({"TORCH_LOGS": f"{Path.home()}/log"}) == {"TORCH_LOGS": ".../log"}
