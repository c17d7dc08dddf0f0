#!/usr/bin/env python3
"""jobscripts/parquet_to_jsonl.py FILES.parquet [--field text] --output FILE.jsonl[.gz]: the texts of one column of Parquet files, which
--field names, as lines {"text": …} for `forge tokenize`; a name that ends in .gz is compressed. Rows without text are left out. Needs
pyarrow (pip install -r jobscripts/requirements.txt). Nothing is left behind by a failure."""
import argparse
import gzip
import json
import os
import sys

from refusal import Refused, ended

ROWS = 256  # that are in memory at a time


def texts(name, field, parquet):
    try:
        file = parquet.ParquetFile(name)
    except Exception as error:  # of the system, or pyarrow's own
        raise Refused(f"{name}: no Parquet file that can be read: {error}") from error
    names = file.schema_arrow.names
    if field not in names:
        raise Refused(f"{name} has no column {field}; legal: --field with one of {', '.join(names)}")
    row = 0
    for batch in file.iter_batches(batch_size=ROWS, columns=[field]):
        for value in batch.column(0).to_pylist():
            if value is not None and not isinstance(value, str):
                raise Refused(f"{name}: row {row} of the column {field} is {type(value).__name__}; legal: text")
            if value:
                yield value
            row += 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--field", default="text")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    if not options.output.endswith((".jsonl", ".jsonl.gz")):
        parser.error(f"--output {options.output}: legal: a name that ends in .jsonl or .jsonl.gz")
    return options


def convert(options):
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise Refused("the package pyarrow is missing: pip install -r jobscripts/requirements.txt") from error
    partial = options.output + ".partial"
    rows = 0
    try:
        packed = options.output.endswith(".gz")
        with gzip.open(partial, "wt", compresslevel=1, encoding="utf-8") if packed else open(partial, "w", encoding="utf-8") as out:
            for name in options.files:
                for text in texts(name, options.field, parquet):
                    out.write(json.dumps({"text": text}) + "\n")
                    rows += 1
        os.replace(partial, options.output)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    print(f"{options.output}: {rows} texts")


if __name__ == "__main__":
    asked = parse()
    sys.exit(ended("parquet_to_jsonl", lambda: convert(asked)))
