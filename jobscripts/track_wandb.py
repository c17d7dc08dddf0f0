"""Weights & Biases for track.py: a run that takes lines, and the last row that the files of a run really have."""
import os
import struct
import time
from pathlib import Path

from refusal import Refused

BLOCK = 32768  # of W&B's files, logs as LevelDB writes them: records, cut at blocks into pieces with heads of seven bytes
WHOLE, FIRST, LAST = 1, 2, 4  # kinds of pieces


def package():
    try:
        import wandb
    except ImportError as error:
        raise Refused(f"the package {error.name} is missing: pip install -r jobscripts/requirements.txt") from error
    return wandb


class Wandb:
    """A run of Weights & Biases."""

    def __init__(self, run, identity, deck, job, options):
        wandb = package()
        try:
            settings = wandb.Settings(console="off", x_disable_stats=True)  # this process is not the job
        except (TypeError, ValueError):
            settings = wandb.Settings(console="off")
        more = {"resume": "allow"} if options.online else {}
        try:
            self.run = wandb.init(project=options.project, name=options.name or run.name, id=identity, dir=str(run), settings=settings,
                                  mode="online" if options.online else "offline", config={"deck": deck, "job": job}, **more)
        except wandb.Error as error:
            raise Refused(f"W&B takes no run: {' '.join(str(error).split())}") from error

    def send(self, figures, step):
        self.run.log(figures, step=step)

    def finish(self):
        self.run.finish()


def records(data, at):
    """The whole records from a place on where a piece begins."""
    whole = None
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0 or at + 7 + size > len(data):
            return  # torn
        piece, at = data[at + 7:at + 7 + size], at + 7 + size
        whole = piece if kind in (WHOLE, FIRST) else None if whole is None else whole + piece
        if kind in (WHOLE, LAST) and whole is not None:
            yield whole


def last_of(data, at, messages):
    """(step, names of its figures) of the last row; (-1, []) without one."""
    step, names = -1, []
    for whole in records(data, at):
        record = messages.Record()
        try:
            record.ParseFromString(whole)
        except ValueError:  # DecodeError is one
            break
        if record.WhichOneof("record_type") == "history":
            found = [item.nested_key[0] if item.nested_key else item.key for item in record.history.item]
            names = names + found if record.history.step.num == step else found
            step = record.history.step.num
    return step, names


def is_open(path):
    """Whether a process has it open: that of the package ends behind a tracker that was killed."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) == str(path):
                return True
        except OSError:
            pass
    return False


def last_row(run, identity):
    """(step, names of its figures) of the last row that a run's files hold, which are written in order; None where there is no file, or the package can't read it."""
    try:
        from wandb.proto import wandb_internal_pb2 as messages
    except ImportError:
        return None
    row = None
    for path in sorted(run.glob(f"wandb/offline-run-*-{identity}/run-{identity}.wandb"), reverse=True):
        end = time.monotonic() + 30
        while is_open(path) and time.monotonic() < end:
            time.sleep(0.1)
        data = path.read_bytes()
        near = max(0, len(data) // BLOCK - 64) * BLOCK  # a whole file of a long run takes minutes
        row = last_of(data, near or 7, messages)
        if row[0] < 0 and near:
            row = last_of(data, 7, messages)
        if row[0] >= 0:
            break
    return row
