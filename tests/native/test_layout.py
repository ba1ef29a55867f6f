"""The structs of the shim as Python sees them: the same fields at the same places as in C."""

import ctypes
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

from mosq.auth.native import calls

SHIM = Path(__file__).resolve().parents[2] / "cext" / "shim"
IN_C = {"Facts": calls.Facts, "struct mosquitto_opt": calls.Option, "Call": calls.Call, "Action": calls.Action, "Stored": calls.Stored}


@pytest.mark.parametrize("name", IN_C)
def test_each_field_is_at_the_same_place(tmp_path, name):
    struct = IN_C[name]
    wanted = [(field[0], getattr(struct, field[0]).offset, getattr(struct, field[0]).size) for field in struct._fields_]
    lines = "".join(f'printf("%d %d\\n", (int)offsetof({name}, {field}), (int)sizeof((({name} *)0)->{field}));' for field, _, _ in wanted)
    (tmp_path / "layout.c").write_text(f'#include "{SHIM}/shim.h"\n#include <stdio.h>\n'
                                       f'int main(void) {{ {lines} printf("%d\\n", (int)sizeof({name})); }}\n')
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    subprocess.run([compiler, "-o", tmp_path / "layout", tmp_path / "layout.c"], check=True, timeout=60)
    got = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert got == [*(f"{offset} {size}" for _, offset, size in wanted), str(ctypes.sizeof(struct))]
