"""Every CUDA source compiles for every supported architecture, on machines without a device: NVRTC from PyPI."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from oocbe.kernels.cuda.modules import OPTIONS, PACKAGE, choices, defined_source, source_text, words

SOURCES = sorted(path.stem for path in PACKAGE.glob("**/kernels/cuda/**/*.cu"))

ARCHITECTURES = (70, 80, 90)
"""The oldest first: what compiles for it, and does not ask for the architecture, compiles for the others."""


def nvrtc_paths() -> list[Path]:
    """Libraries of the packages nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvrtc (CUDA 13), where installed."""
    found = importlib.util.find_spec("nvidia")
    folders = [] if found is None else [Path(p) for p in found.submodule_search_locations or ()]
    return sorted(p for f in folders for p in f.glob("*/lib/libnvrtc.so.1?") if "builtins" not in p.name)


class Compiler:
    """NVRTC through ctypes."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.major = major.value
        count = ctypes.c_int()
        self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        architectures = (ctypes.c_int * count.value)()
        self.library.nvrtcGetSupportedArchs(architectures)
        self.architectures = set(architectures)

    def log_of(self, text: str, options: tuple[str, ...]) -> tuple[int, str]:
        """Compile; error code and the compiler's messages."""
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"source.cu", 0, None, None)
        encoded = [option.encode() for option in options]
        code = self.library.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded))
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return code, log.value.decode()


@pytest.fixture(scope="module", params=[12, 13], ids=["cuda12", "cuda13"])
def compiler(request) -> Compiler:
    for path in nvrtc_paths():
        if path.name.endswith(str(request.param)):
            return Compiler(path)
    pytest.skip(f"no NVRTC of CUDA {request.param} (package nvidia-cuda-nvrtc{'-cu12' * (request.param == 12)})")


def variants_of(name: str) -> list[dict[str, str]]:
    """Combinations of definitions in which each value of each occurs."""
    found = choices(name)
    count = max((len(values) for values in found.values()), default=1)
    return [{key: values[i % len(values)] for key, values in found.items()} for i in range(count)]


def cases() -> list:
    """Every source for the oldest architecture, and those that ask for it for the newest; the others for all are slow.

    Nothing is optimised, which takes twice as long. Only the last variant, that of the widest values, is compiled to
    machine code, which is where too much shared memory shows, and that for the oldest architecture, which has least;
    the others end as PTX, in a sixth of the time. All of them to optimised machine code is slow.
    """
    light = [
        pytest.param(place, name, False)
        for place in (0, len(ARCHITECTURES) - 1)
        for name in SOURCES
        if not place or "__CUDA_ARCH__" in source_text(name)
    ]
    every = [(place, name, True) for place in range(len(ARCHITECTURES)) for name in SOURCES]
    return [*light, *(pytest.param(*case, marks=pytest.mark.slow) for case in every)]


@pytest.mark.parametrize(("place", "name", "all_machine_code"), cases())
def test_source_compiles(compiler, name, place, all_machine_code):
    supported = [architecture for architecture in ARCHITECTURES if architecture in compiler.architectures]
    if place >= len(supported):
        pytest.skip(f"CUDA {compiler.major} no longer compiles for all of {ARCHITECTURES}")
    architecture = supported[place]
    *others, last = variants_of(name)
    for definitions in (*others, last):
        kind = "sm" if all_machine_code or (definitions is last and not place) else "compute"
        unoptimised = () if all_machine_code else ("--device-debug",)
        options = (*OPTIONS, f"--gpu-architecture={kind}_{architecture}", *unoptimised)
        code, log = compiler.log_of(defined_source(name, definitions), options)
        assert code == 0, f"{name}.cu with {definitions}:\n{log}"
        assert "): warning" not in log  # one without a place in the source is about the architecture's age


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("bucket_join", ("LookupArrays", "LeafArrays", "BoundArrays", "Bounds", "Level", "Leaf")),
        ("compact_tables", ("Tables", "State", "Call")),
        ("linear_rows", ("Rows",)),
        ("linear_probes", ("Rows", "Matrix")),
        ("tree_sweeps", ("Tree", "Steps", "Block")),
    ],
)
def test_structs_are_as_wide_as_the_host_makes_them(compiler, source, names):
    asserted = [f'static_assert(sizeof({name}) == {8 * words(source, name)}, "{name}");' for name in names]
    definitions = {name: values[0] for name, values in choices(source).items()}
    options = (*OPTIONS, "--gpu-architecture=compute_80", "--device-debug")
    code, log = compiler.log_of("\n".join([defined_source(source, definitions), *asserted]), options)
    assert code == 0, log


def test_a_broken_source_is_noticed(compiler):
    code, log = compiler.log_of('extern "C" __global__ void f(int *a) { b = 1; }', ("--gpu-architecture=sm_80",))
    assert code != 0
    assert "b" in log


def test_headers_are_put_in_once():
    text = source_text("fields")
    assert "#include" not in text
    assert text.count("typedef unsigned long long u64;") == 1


def test_definitions_of_a_source():
    assert choices("fields") == {}
    assert choices("join") == {"VALUE": ["int", "long long", "float", "double"], "COMBINATION": ["0", "1"]}
