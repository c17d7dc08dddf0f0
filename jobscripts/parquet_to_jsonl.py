#!/usr/bin/env python3
"""jobscripts/parquet_to_jsonl.py FILES.parquet [--field text] [--output FILE.jsonl.gz]: a column of Parquet files as lines {"text": …} for
`forge tokenize`, row group by row group; a name that ends in .gz is compressed. Rows without text are left out. Needs pyarrow."""
import argparse
import gzip
import json
import os
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--field", default="text")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        sys.exit("parquet_to_jsonl: pyarrow is needed: pip install pyarrow")
    partial = options.output + ".partial"
    rows = 0
    opened = gzip.open(partial, "wt", compresslevel=1, encoding="utf-8") if options.output.endswith(".gz") else open(partial, "w", encoding="utf-8")
    try:
        with opened as out:
            for name in options.files:
                file = parquet.ParquetFile(name)
                if options.field not in file.schema_arrow.names:
                    sys.exit(f"parquet_to_jsonl: {name} has no column {options.field}; it has {', '.join(file.schema_arrow.names)}")
                for batch in file.iter_batches(columns=[options.field]):
                    for value in batch.column(0).to_pylist():
                        if value:
                            out.write(json.dumps({options.field: value}) + "\n")
                            rows += 1
        os.replace(partial, options.output)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    print(f"{options.output}: {rows} texts")


main()
