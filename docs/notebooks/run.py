"""Run the notebooks and store their outputs in them: python docs/notebooks/run.py [NAME.ipynb]...

Each runs in an empty folder, with a kernel of its own. Paths of that folder and of cells are taken out of the outputs.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
          "language_info": {"name": "python", "pygments_lexer": "ipython3"}}


def run(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with new outputs. Raises CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for !tritium
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    notebook.metadata = nbformat.from_dict(KERNEL)
    nbformat.validate(notebook)
    return notebook


def _joined(outputs: list) -> list:
    """Return the outputs with neighbouring texts of one stream joined, and without temporary paths."""
    found: list = []
    for output in outputs:
        if output.output_type == "stream":
            output.text = re.sub(r"/\S*/ipykernel_\d+/\d+\.py", "cell", output.text)
            if found and found[-1].output_type == "stream" and found[-1].name == output.name:
                found[-1].text += output.text
                continue
        output.pop("transient", None)
        found.append(output)
    return found


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(HERE.glob("*.ipynb")):
        nbformat.write(run(Path(name)), name)
        print(name)
