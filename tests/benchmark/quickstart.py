"""The quickstart with other settings, for the programs here that compare what training learns."""

import json
import os
import subprocess
import sys


def validations(directory):
    """The (step, loss) of a run's validations so far, over all held-out sequences of the quickstart's."""
    path = f"{directory}/metrics.jsonl"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    return [(line["step"], line["validation_loss"]) for line in lines if "validation_loss" in line]


def train(forge, directory, settings, steps, threads=None):
    """Trains into `directory`, unless a run of that many steps has ended there; three validations, returned."""
    done = validations(directory)
    if done and done[-1][0] == steps:
        return done
    values = settings + [
        f"train.steps={steps}",
        f"train.validate_every_steps={steps // 3}",
        f"output.directory={directory}",
        "output.sample_tokens=0",
        "output.save_hf=false",
        "checkpoint.directory=null",
        "checkpoint.every_steps=0",
        "checkpoint.keep_last=0",
    ]
    command = [forge, "inputs/quickstart.yaml"] + [word for value in values for word in ("--set", value)]
    environment = dict(os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}))
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode != 0:
        sys.exit(" ".join(command) + "\n" + ended.stdout + ended.stderr)
    return validations(directory)
