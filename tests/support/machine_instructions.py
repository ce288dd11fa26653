"""The instructions of compiled kernels, counted, without a GPU."""

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from tritium.kernels.gpu import store
from tritium.kernels.gpu.compile import compile_all


def instructions(job):
    """Return the number of each instruction in the machine code of a job, without suffixes but those of MUFU and IMAD."""
    import triton

    compile_all([job])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(store.find(job.digest())[1])
        f.flush()
        text = subprocess.run([str(tool), "-c", f.name], capture_output=True, text=True, check=True).stdout
    return Counter(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?((?:MUFU|IMAD)\.\w+|\w+)", text, re.MULTILINE))
