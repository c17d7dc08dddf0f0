#!/usr/bin/env python3
"""draws.py FORGE: initial values are drawn by a start that has no others, once for each drawn parameter, and by nothing that reads a
checkpoint: restart, a job that Slurm has put back, another run by model_from, evaluate, generate. Counted by the emulated GPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FORGE = sys.argv[1]
RANKS = 2
SETTINGS = ["train.precision=bf16", "train.zero_stage=1", "mesh.dp_shard=-1", "machine.workspace_mib=1", "machine.peak_tflops=1", "checkpoint.every_steps=1",
            "data.validation_files=[verify/llama/tokens.bin]", "train.validation_sequences=2", "train.microbatch_sequences=1"]


def draws(work, *words, ranks=RANKS, environment=None):
    """Launches that draw, of all devices; those of all kernels."""
    report = work / "report"
    report.unlink(missing_ok=True)
    command = [FORGE, *words, *(["--ranks", str(ranks)] if ranks > 1 else [])]
    done = subprocess.run(command, env={**os.environ, "SLURM_JOB_ID": "7", "FORGE_VGPU_REPORT": str(report), **(environment or {})}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    launches = [line["launches"] for line in map(json.loads, report.read_text().splitlines())]
    if not all(launches):
        sys.exit(f"{' '.join(command)}: a device has launched no kernel")
    return sum(n for device in launches for name, n in device.items() if "fill_normal" in name)


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)

        def deck(steps, saved="saved"):
            settings = [*SETTINGS, f"train.steps={steps}", f"checkpoint.directory={work}/{saved}", f"output.directory={work}/{saved}.run"]
            return ["tests/gpu/dense.yaml", *(word for setting in settings for word in ("--set", setting))]

        fresh = draws(work, *deck(1))
        if fresh < 10:
            sys.exit(f"a start draws initial values in {fresh} launches")
        checkpoint = f"checkpoint.model_from={work}/saved"
        for name, words, more in [
                ("restart", [*deck(2), "--restart"], {}),
                ("requeue", deck(3), {"environment": {"SLURM_RESTART_COUNT": "1"}}),
                ("model_from", [*deck(1, "other"), "--set", checkpoint], {}),
                ("evaluate", ["evaluate", *deck(1), "--checkpoint", "latest"], {}),
                ("generate", ["generate", *deck(1), "--checkpoint", "latest", "--tokens", "1,2", "--length", "2"], {"ranks": 1})]:
            if drawn := draws(work, *words, **more):
                sys.exit(f"{name}: initial values are drawn, by {drawn} launches")
        print(f"a start draws in {fresh} launches, and what reads a checkpoint in none")


main()
