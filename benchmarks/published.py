"""What Fioretto et al. (Constraints 2018) print: settings and times of tables 1 to 3, bounds of tables 6, 8 and 10."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A row of tables 1 to 3: a topology, n variables (of a grid: of a side), d values, density p1 (random only).

    width : w*, the mean of 50 networks. cpu, gpu : seconds of centralised elimination; None: out of memory.
    dpop_cpu, dpop_gpu : simulated seconds of DPOP likewise.
    """

    topology: str
    n: int
    d: int
    p1: float | None
    width: float
    cpu: float | None
    gpu: float | None
    dpop_cpu: float | None
    dpop_gpu: float | None


def _settings(topology: str, text: str) -> list[Setting]:
    rows = []
    for line in text.strip().splitlines():
        n, d, *p1, width, cpu, gpu, dpop_cpu, dpop_gpu = line.split()
        times = [None if t == "oom" else float(t) for t in (cpu, gpu, dpop_cpu, dpop_gpu)]
        rows.append(Setting(topology, int(n), int(d), float(p1[0]) if p1 else None, float(width), *times))
    return rows


TABLE_1 = _settings(
    "random",
    """
10 10 0.3 2.9 0.019 0.002 0.007 0.001
11 10 0.3 3.2 0.031 0.002 0.013 0.001
12 10 0.3 3.6 0.069 0.003 0.028 0.001
13 10 0.3 4.3 0.413 0.005 0.210 0.002
14 10 0.3 4.4 0.631 0.006 0.214 0.002
15 10 0.3 5.3 4.190 0.026 1.609 0.009
16 10 0.3 5.8 32.29 0.189 9.848 0.049
17 10 0.3 6.4 65.41 0.328 28.14 0.138
18 10 0.3 7.5 206.1 0.944 103.0 0.483
19 10 0.3 8.0 602.1 2.541 470.2 2.019
20 10 0.3 8.5 675.3 3.145 508.9 2.160
10 5 0.3 3.0 0.001 0.002 0.001 0.001
10 25 0.3 2.8 0.227 0.004 0.092 0.001
10 50 0.3 2.9 24.81 0.095 13.99 0.048
10 100 0.3 2.9 67.59 0.220 35.22 0.118
10 10 0.2 2.0 0.001 0.001 0.001 0.001
10 10 0.4 3.8 0.094 0.002 0.042 0.001
10 10 0.5 4.5 0.525 0.005 0.234 0.002
10 10 0.6 5.4 3.378 0.019 1.941 0.011
10 10 0.7 5.9 14.86 0.072 10.00 0.053
10 10 0.8 6.7 56.23 0.246 31.29 0.147
10 10 0.9 7.6 72.32 0.312 42.47 0.201
""",
)
TABLE_2 = _settings(
    "scale-free",
    """
10 10 6.3 22.99 0.111 13.78 0.064
11 10 6.0 25.57 0.120 13.21 0.057
12 10 6.0 27.96 0.132 14.60 0.072
13 10 5.9 80.14 0.370 36.21 0.174
14 10 6.9 78.36 0.339 32.50 0.145
15 10 8.2 189.4 0.887 66.86 0.340
16 10 9.2 oom oom oom oom
17 10 9.5 oom oom oom oom
18 10 10 oom oom oom oom
19 10 11 oom oom oom oom
20 10 12 oom oom oom oom
10 5 6.8 0.322 0.004 0.175 0.001
10 25 6.6 242.5 0.888 127.9 0.593
10 50 6.4 oom oom oom oom
10 100 6.4 oom oom oom oom
""",
)
TABLE_3 = _settings(
    "grid",
    """
5 10 3.3 0.259 0.005 0.022 0.001
6 10 3.7 0.267 0.008 0.022 0.001
7 10 3.7 0.515 0.012 0.037 0.001
8 10 3.6 0.848 0.018 0.041 0.001
9 10 3.9 1.460 0.028 0.049 0.001
10 10 4.0 1.881 0.035 0.054 0.002
11 10 3.7 1.934 0.040 0.073 0.002
12 10 3.8 2.174 0.042 0.089 0.002
13 10 3.9 2.430 0.045 0.102 0.003
14 10 4.0 2.996 0.055 0.127 0.003
15 10 4.0 3.785 0.071 0.151 0.004
10 5 3.7 0.043 0.020 0.001 0.001
10 25 3.9 97.29 0.388 2.930 0.011
10 50 4.0 oom oom oom oom
10 100 4.0 oom oom oom oom
""",
)

TABLES = {1: TABLE_1, 2: TABLE_2, 3: TABLE_3}


@dataclass(frozen=True)
class Bounds:
    """A row of tables 6, 8 or 10.

    table : its number. path : of the instance below the folder of data. width : w*.
    bounds : at z = zmin (the largest arity), zmin + (zmax - zmin) / 3, zmin + 2 (zmax - zmin) / 3 and zmax. zmax is not
        printed: it is at most 20 and what the device's memory allowed.
    """

    table: int
    path: str
    width: int
    bounds: tuple[int, int, int, int]


BOUNDS = (
    Bounds(6, "wcsp/celar6/CELAR6-SUB0.wcsp", 7, (0, 13, 13, 13)),
    Bounds(6, "wcsp/celar6/CELAR6-SUB1-24.wcsp", 9, (0, 280, 598, 772)),
    Bounds(6, "wcsp/celar6/CELAR6-SUB2.wcsp", 10, (0, 231, 387, 387)),
    Bounds(8, "wcsp/iscas89/s386.wcsp", 19, (29, 29, 29, 29)),
    Bounds(8, "wcsp/iscas89/s1423.wcsp", 38, (231, 231, 231, 231)),
    Bounds(8, "wcsp/iscas89/c499.wcsp", 42, (111, 111, 111, 111)),
    Bounds(8, "wcsp/iscas89/c432.wcsp", 54, (101, 101, 101, 101)),
    Bounds(8, "wcsp/iscas89/s953.wcsp", 93, (124, 124, 124, 124)),
    Bounds(10, "spot5/8.spot", 2, (2, 2, 2, 2)),
    Bounds(10, "spot5/1502.spot", 5, (28042, 28042, 28042, 28042)),
    Bounds(10, "spot5/54.spot", 11, (31, 32, 35, 37)),
    Bounds(10, "spot5/503.spot", 12, (7093, 9106, 11111, 11113)),
    Bounds(10, "spot5/29.spot", 14, (7035, 8048, 8055, 8059)),
    Bounds(10, "spot5/404.spot", 19, (76, 106, 112, 114)),
    Bounds(10, "wcsp/spot5b/42b.wcsp", 19, (58049, 95050, 135050, 155050)),
    Bounds(10, "spot5/1504.spot", 25, (80104, 107175, 131227, 141251)),
    Bounds(10, "wcsp/spot5b/408b.wcsp", 29, (2104, 5162, 6206, 6215)),
    Bounds(10, "spot5/42.spot", 30, (60049, 97050, 105050, 133050)),
    Bounds(10, "spot5/505.spot", 30, (5103, 7149, 10178, 15211)),
    Bounds(10, "spot5/408.spot", 40, (2100, 3123, 4169, 5185)),
    Bounds(10, "spot5/5.spot", 44, (42, 53, 86, 106)),
    Bounds(10, "spot5/412.spot", 48, (2106, 2131, 8176, 11258)),
    Bounds(10, "spot5/509.spot", 92, (3105, 3217, 5191, 6157)),
    Bounds(10, "spot5/11.spot", 104, (3113, 3120, 4195, 6141)),
    Bounds(10, "spot5/1401.spot", 105, (64057, 61066, 66071, 87071)),
    Bounds(10, "spot5/1403.spot", 105, (58099, 71129, 74118, 82120)),
    Bounds(10, "spot5/1021.spot", 105, (58127, 74180, 75164, 84202)),
)
"""``11`` is what the paper calls 414, ``1021`` its 1407."""
