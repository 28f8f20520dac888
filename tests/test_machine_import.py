"""`contend machine import`: from sysfs trees, hwloc's XML and tables of distances to a machine that runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import Contend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
with_lstopo = pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="hwloc is not installed")

HEAD = '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
ONE_CPU = (
    '<topology version="2.0"><object type="Machine" cpuset="0x1"><object type="PU" os_index="0"/></object></topology>'
)


def put(directory: Path, files: dict[str, str]) -> None:
    """A tree of small files."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text + "\n")


def cpu(number: int, siblings: str, llc: str) -> dict[str, str]:
    """What sysfs has of a CPU."""
    at = f"cpu/cpu{number}"
    return {
        f"{at}/topology/core_cpus_list": siblings,
        f"{at}/topology/physical_package_id": "0",
        f"{at}/cache/index3/level": "3",
        f"{at}/cache/index3/type": "Unified",
        f"{at}/cache/index3/size": "8M",
        f"{at}/cache/index3/shared_cpu_list": llc,
    }


def made(path: Path) -> dict[str, Any]:
    """The topology in a machine file."""
    table: dict[str, Any] = tomllib.loads(path.read_text())["topology"]
    return table


def places(topology: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Core, LLC and node of each listed CPU."""
    return [(c["core"], c["llc"], c["node"]) for c in topology["cpu"]]


@with_lstopo
@pytest.mark.parametrize("flags", [[], ["--export-xml-flags", "1"]], ids=["hwloc2", "hwloc1"])
def test_hwlocs_xml_of_both_formats(contend: Contend, tmp_path: Path, flags: list[str]) -> None:
    shape = "node:2 l3:2 core:4 pu:2"
    subprocess.run(["lstopo-no-graphics", "--of", "xml", "-i", shape, *flags, "h.xml"], cwd=tmp_path, check=True)
    done = contend("machine", "import", "--lstopo", "h.xml", "--name", "host", "--out", "host.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "32 CPUs, 16 cores, 4 last-level caches, 2 nodes" in done.stdout
    topology = made(tmp_path / "host.toml")
    topology.pop("slit", None)
    assert topology == {"nodes": 2, "llcs_per_node": 2, "cores_per_llc": 4, "threads_per_core": 2,
                        "numbering": "threads-first"}  # fmt: skip
    costs = contend("list", "costs", "--machine", "host.toml")
    assert costs.returncode == 0, costs.stderr


@with_lstopo
def test_hwloc_and_sysfs_agree_on_this_machine(contend: Contend, tmp_path: Path) -> None:
    subprocess.run(["lstopo-no-graphics", "--of", "xml", "here.xml"], cwd=tmp_path, check=True)
    for name, args in [("a", ["--lstopo", "here.xml"]), ("b", []), ("c", ["--sysfs", "/sys"])]:
        done = contend("machine", "import", *args, "--out", f"{name}.toml")
        assert (done.returncode, done.stderr) == (0, "")
    assert made(tmp_path / "a.toml") == made(tmp_path / "b.toml") == made(tmp_path / "c.toml")


def test_holes_hybrid_cores_and_offline_cpus(contend: Contend, tmp_path: Path) -> None:
    # Two threads of a large core, two small cores, a hole, an LLC of their own; CPU 3 is offline.
    files = {
        "cpu/online": "0-2,5",
        "cpu/present": "0-3,5",
        "cpu/cpu0/cpu_capacity": "1024",
        "cpu/cpu2/cpu_capacity": "512",
    }
    files |= cpu(0, "0-1", "0-1") | cpu(1, "0-1", "0-1") | cpu(2, "2", "2,5") | cpu(5, "5", "2,5")
    put(tmp_path / "tree/sys/devices/system", files)
    done = contend("machine", "import", "--sysfs", "tree", "--out", "m.toml")
    assert (done.returncode, done.stderr) == (0, "")
    for note in ["1 CPUs are offline", "run to 5 with gaps", "CPUs of 2 kinds (hybrid)"]:
        assert note in done.stdout and note in (tmp_path / "m.toml").read_text()
    assert places(made(tmp_path / "m.toml")) == [(0, 0, 0), (0, 0, 0), (1, 1, 0), (2, 1, 0)]
    run = contend("list", "costs", "--machine", "m.toml")
    assert run.returncode == 0, run.stderr


def kinds(file: Path) -> list[tuple[str, str, int]]:
    machine = tomllib.loads(file.read_text())
    named, capacity = machine["topology"].get("kinds", []), machine.get("cpu", {}).get("capacity", [])
    return [(k["name"], k["cpus"], c["value"]) for k, c in zip(named, capacity, strict=True)]


def test_kinds_of_cores(contend: Contend, tmp_path: Path) -> None:
    """A phone of three kinds, whose CPU 3 is offline; and what cannot be."""

    def tree(name: str, capacities: list[int], **more: str) -> None:
        files = {"cpu/online": "0-2,4-7"} | {f"cpu/cpu{i}/cpu_capacity": str(c) for i, c in enumerate(capacities)}
        for i in range(8):
            files |= cpu(i, str(i), "0-7")
        put(tmp_path / name, files | more)

    tree("phone", [325, 325, 325, 325, 828, 828, 828, 1024])
    done = contend("machine", "import", "--sysfs", "phone", "--out", "phone.toml")
    assert (done.returncode, done.stderr) == (0, "") and "one speed" not in done.stdout
    assert kinds(tmp_path / "phone.toml") == [("little", "0-2", 325), ("middle", "3-5", 828), ("big", "6", 1024)]
    (tmp_path / "rt.json").write_text('{"tasks": {"a": {"loop": 1, "run": 100000}}, "global": {"calibration": "CPU6"}}')
    run = contend("run", "rt.json", "--machine", "phone.toml", "--json", "--out", "r")
    assert run.returncode == 0, run.stderr
    assert [k["nr_cpus"] for k in json.loads(run.stdout)["cpu_kinds"]] == [3, 3, 1]
    explained = contend("explain", "r").stdout
    assert "Kinds of CPUs" in explained and "middle (3-5)" in explained

    # Offline CPUs may have been the fastest.
    tree("slow", [512, 512, 512, 1024, 256, 256, 256, 256])
    assert contend("machine", "import", "--sysfs", "slow", "--out", "slow.toml").returncode == 0
    assert kinds(tmp_path / "slow.toml") == [("little", "3-6", 512), ("big", "0-2", 1024)]

    # All alike; and two threads of a core that differ.
    tree("alike", [512] * 8)
    assert contend("machine", "import", "--sysfs", "alike", "--out", "alike.toml").returncode == 0
    assert kinds(tmp_path / "alike.toml") == []
    tree("torn", [512, 1024] * 4, **{f"cpu/cpu{i}/topology/core_cpus_list": "0-1" for i in (0, 1)})
    done = contend("machine", "import", "--sysfs", "torn", "--out", "torn.toml")
    assert "2 capacities, threads of one core differ" in done.stdout and kinds(tmp_path / "torn.toml") == []


def test_kinds_of_hwloc(contend: Contend, tmp_path: Path) -> None:
    def xml(*kinds: str) -> str:
        cpus = "".join(
            f'<object type="Core" os_index="{i}"><object type="PU" os_index="{i}"/></object>' for i in range(4)
        )
        all_cpus = f'<object type="Machine" cpuset="0xf">{cpus}</object>'
        return f'{HEAD}<topology version="2.0">{all_cpus}{"".join(kinds)}</topology>'

    def kind(mask: str, capacity: int | None) -> str:
        info = "" if capacity is None else f'<info name="LinuxCapacity" value="{capacity}"/>'
        return f'<cpukind cpuset="{mask}">{info}</cpukind>'

    for name, text, found in [
        ("told", xml(kind("0x3", 446), kind("0xc", 1024)), [("little", "0-1", 446), ("big", "2-3", 1024)]),
        ("untold", xml(kind("0x3", None), kind("0xc", None)), []),
        ("half", xml(kind("0x3", 446), kind("0xc", None)), []),
    ]:
        (tmp_path / f"{name}.xml").write_text(text)
        done = contend("machine", "import", "--lstopo", f"{name}.xml", "--out", f"{name}.toml")
        assert (done.returncode, done.stderr) == (0, "")
        assert kinds(tmp_path / f"{name}.toml") == found
        assert ("CPUs of 2 kinds (hybrid)" in done.stdout) == (not found)


def test_trees_of_old_kernels(contend: Contend, tmp_path: Path) -> None:
    # Masks where later ones have lists, and no list of what is online: CPU 3 is not.
    files = {"cpu/cpu3/online": "0", "node/node0/cpumap": "00000003", "node/node1/cpumap": "00000000,00000014"}
    for number, core, llc in [(0, "3", "3"), (1, "3", "3"), (2, "4", "14"), (3, "8", "8"), (4, "10", "14")]:
        at = f"cpu/cpu{number}"
        files[f"{at}/topology/thread_siblings"] = f"00000000,{core:0>8}"
        files |= {f"{at}/cache/index3/{key}": value for key, value in [
            ("level", "3"), ("type", "Unified"), ("size", "8M"), ("shared_cpu_map", llc)]}  # fmt: skip
    put(tmp_path / "tree", files)
    done = contend("machine", "import", "--sysfs", "tree", "--out", "m.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "which CPUs are online is not known" in done.stdout and "1 CPUs are offline" in done.stdout
    assert places(made(tmp_path / "m.toml")) == [(0, 0, 0), (0, 0, 0), (1, 1, 1), (2, 1, 1)]


NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0
node distances:
node   0   1
  0:  10  31
  1:  31  10
"""
TWO_NODES = {"cpu/online": "0-1", "node/node0/cpulist": "0", "node/node1/cpulist": "1",
             **cpu(0, "0", "0"), **cpu(1, "1", "1")}  # fmt: skip


def test_clusters_of_hwloc(contend: Contend, tmp_path: Path) -> None:
    """As a Kunpeng 920 has them: groups over private caches. And cores that share a second-level cache."""

    def core(number: int, cache: str = "") -> str:
        pu = f'<object type="PU" os_index="{number}" cpuset="{1 << number:#x}"/>'
        return f"{cache}<object type='Core' os_index='{number}'>{pu}</object>{'</object>' if cache else ''}"

    def xml(half: str, open_: str, close: str, cache: str) -> str:
        pairs = [f"{open_}{core(2 * i, cache)}{core(2 * i + 1, cache)}{close}" for i in range(4)]
        caches = [f"{half}{''.join(pairs[2 * i : 2 * i + 2])}</object>" for i in range(2)]
        return f'{HEAD}<topology version="2.0"><object type="Machine">{"".join(caches)}</object></topology>'

    l3 = "<object type='L3Cache' depth='3' cache_size='33554432'>"
    l2 = "<object type='L2Cache' depth='2' cache_size='524288'>"
    group = '<object type="Group" subtype="Cluster" kind="222" subkind="0">'
    shape = {"nodes": 1, "llcs_per_node": 2, "cores_per_llc": 4, "cores_per_cluster": 2, "threads_per_core": 1}
    for name, text in [("tags", xml(l3, group, "</object>", l2)), ("caches", xml(l3, l2, "</object>", ""))]:
        (tmp_path / f"{name}.xml").write_text(text)
        done = contend("machine", "import", "--lstopo", f"{name}.xml", "--out", f"{name}.toml")
        assert done.returncode == 0, done.stderr
        assert "8 CPUs, 8 cores, 4 clusters, 2 last-level caches, 1 nodes" in done.stdout
        assert shape.items() <= made(tmp_path / f"{name}.toml").items(), name
        run = ["--machine", f"{name}.toml", "--set", "workload.duration_ms=5", "--json"]
        (tmp_path / "s.toml").write_text('machine = "8c"\n[workload]\nkind = "periodic"\ntasks = 16\n')
        found = json.loads(contend("run", "s.toml", *run).stdout)
        assert list(found["wakeups"]["from_waker"]) == ["cpu", "core", "cluster", "llc", "node"]


def test_distances(contend: Contend, tmp_path: Path) -> None:
    put(tmp_path / "t", TWO_NODES | {"node/node0/distance": "10 21", "node/node1/distance": "21 10"})
    (tmp_path / "numactl.txt").write_text(NUMACTL)
    (tmp_path / "plain.txt").write_text("# measured\n10 17\n17, 10\n")
    for args, distance in [([], 21), (["--slit", "numactl.txt"], 31), (["--slit", "plain.txt"], 17)]:
        done = contend("machine", "import", "--sysfs", "t", *args, "--out", "m.toml", "--force")
        assert (done.returncode, done.stderr) == (0, "")
        assert made(tmp_path / "m.toml")["slit"] == [[10, distance], [distance, 10]]


def test_distances_of_hwloc(contend: Contend, tmp_path: Path) -> None:
    def xml(distances: str) -> str:
        nodes = "".join(
            f'<object type="Package" os_index="{i}" cpuset="0x{i + 1}"><object type="NUMANode" os_index="{i}"'
            f' cpuset="0x{i + 1}"/><object type="PU" os_index="{i}" cpuset="0x{i + 1}"/></object>'
            for i in range(2)
        )
        return f'{HEAD}<topology version="2.0"><object type="Machine">{nodes}</object>{distances}</topology>'

    distances = (
        '<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="os"><indexes length="3">0 1</indexes>{}</distances2>'
    )
    (tmp_path / "h.xml").write_text(xml(distances.format("<u64values length='9'>10 28 28 10</u64values>")))
    done = contend("machine", "import", "--lstopo", "h.xml", "--out", "m.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert made(tmp_path / "m.toml")["slit"] == [[10, 28], [28, 10]]
    (tmp_path / "h.xml").write_text(xml(distances.format("<u64values length='9'>10 28</u64values>")))
    done = contend("machine", "import", "--lstopo", "h.xml", "--out", "n.toml")
    assert done.returncode == 2
    assert "h.xml:3: contradictory: distances of 2 nodes in 2 values; the topology has 2 nodes" in done.stderr


def test_distances_of_hwloc_1(contend: Contend, tmp_path: Path) -> None:
    nodes = "".join(
        f'<object type="NUMANode" os_index="{i}" cpuset="0x{i + 1}">'
        f'<object type="PU" os_index="{i}" cpuset="0x{i + 1}"/></object>'
        for i in range(2)
    )
    values = "".join(f'<latency value="{v}"/>' for v in ("1.000000", "2.100000", "2.100000", "1.000000"))
    distances = f'<distances nbobjs="2" relative_depth="1" latency_base="10.000000">{values}</distances>'
    (tmp_path / "h.xml").write_text(f'<topology><object type="Machine">{distances}{nodes}</object></topology>')
    done = contend("machine", "import", "--lstopo", "h.xml", "--out", "m.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert made(tmp_path / "m.toml")["slit"] == [[10, 21], [21, 10]]


def test_more_distances_than_have_default_costs_are_joined(contend: Contend, tmp_path: Path) -> None:
    n = 6
    files = {"cpu/online": f"0-{n - 1}"}
    for i in range(n):
        row = " ".join(str(10 if i == j else 10 + 10 * abs(i - j)) for j in range(n))
        files |= cpu(i, str(i), str(i)) | {f"node/node{i}/cpulist": str(i), f"node/node{i}/distance": row}
    put(tmp_path / "t", files)
    done = contend("machine", "import", "--sysfs", "t", "--out", "m.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "more than 4 different distances of nodes have no default costs: close ones are joined" in done.stdout
    # 20 to 60 in four classes: two close ones are their mean.
    row = made(tmp_path / "m.toml")["slit"][0]
    assert len(set(row)) == 5 and all(abs(d - (10 + 10 * i)) <= 5 for i, d in enumerate(row)), row
    costs = contend("list", "costs", "--machine", "m.toml")
    assert costs.returncode == 0, costs.stderr


LAUGHS = (
    '<!DOCTYPE t [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {x} "{f"&{y};" * 10}">' for x, y in zip("bcdefghijk", "abcdefghij", strict=True))
    + "]><topology><info name='&k;' value='1'/></topology>"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid XML"),
        (HEAD + ONE_CPU[:70], "not valid XML"),
        ("\0\1\2", "not valid XML"),
        (LAUGHS, "not valid XML"),
        ("<html/>", "found <html>; should be <topology>"),
        ("<topology/>", "found no CPUs (objects of type PU)"),
        (ONE_CPU.replace('os_index="0"', ""), "a PU without a sensible os_index"),
        (ONE_CPU.replace('os_index="0"', 'os_index="x"'), 'os_index: found "x"; should be a whole number'),
        (ONE_CPU.replace('"0x1"', '"0x2"'), "contradictory: CPU 0 lies in this Machine, whose cpuset is without it"),
        (ONE_CPU.replace('"0x1"', '"many"'), 'cpuset: found "many"; should be a mask such as 0x0000000f'),
        (ONE_CPU.replace("<object type=\"PU\"", '<object type="PU" os_index="0"/><object type="PU"'),
         "contradictory: CPU 0 is there twice"),
    ],
)  # fmt: skip
def test_xml_that_is_not_right(contend: Contend, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "h.xml").write_text(text)
    done = contend("machine", "import", "--lstopo", "h.xml", "--out", "m.toml", timeout=30)
    assert done.returncode == 2 and done.stderr.startswith("error: h.xml") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "m.toml").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--sysfs", "none"], "none: found no such directory; should be a copy of /sys/devices/system, or of /sys"),
        (["--sysfs", "empty"], "empty: found no cpu/ in it; should be a copy of /sys/devices/system, or of /sys"),
        (["h.xml"], "h.xml: contend machine import must be told what it is: "
                    "--sysfs DIR or --lstopo FILE or --slit FILE (`contend machine import --help` says more)"),
        (["--sysfs", "bare"], "bare/cpu/online: found no CPUs; should list them, such as 0-3"),
        (["--sysfs", "nobody"], "nobody/cpu/online: found no CPUs; should list them, such as 0-3"),
        (["--sysfs", "t", "--lstopo", "x"], "--lstopo: found --sysfs too; should be one of them"),
        (["--sysfs", "t", "--slit", "one"],
         "one: found 1 rows of distances; should be 2, one for each node of the topology"),
        (["--sysfs", "t", "--slit", "short"], "short:2: found 1 distances; should be 2, one for each node"),
        (["--sysfs", "t", "--slit", "words"], 'words:1: found "far"; should be a distance, 10 to 254'),
        (["--sysfs", "t", "--slit", "uneven"], "uneven:1: found 20 from node 0 to 1 and 30 back; should be the same"),
        (["--sysfs", "t", "--slit", "near"],
         "near:1: found 10 from node 0 to 1; should be 10 to itself and more elsewhere"),
        (["--lstopo", "none"], "none: cannot be read: No such file or directory"),
        (["--sysfs", "t", "--name", ""], 'name: found ""; should be 1 to 64 characters'),
    ],
)  # fmt: skip
def test_inputs_that_are_not_right(contend: Contend, tmp_path: Path, args: list[str], said: str) -> None:
    put(tmp_path, {"empty/x": "", "bare/cpu/x": "", "nobody/cpu/online": "", "one": "10", "short": "10 20\n20",
                   "words": "10 far\n20 10", "uneven": "10 20\n30 10", "near": "10 10\n10 10"})  # fmt: skip
    put(tmp_path / "t", TWO_NODES)
    done = contend("machine", "import", *args, "--out", "m.toml")
    assert (done.returncode, done.stderr) == (2, f"error: {said}\n")
    assert not (tmp_path / "m.toml").exists()
