#!/usr/bin/env bash
# parquet.sh FORGE: a column of Parquet files becomes lines that forge tokenize reads. pyarrow is no package of Debian: where Python
# (PYTHON) has none, a stand-in for it reads JSON, so that the script runs at least, and this is announced.
set -euo pipefail
forge=$1
. tests/app/expect.sh
python=${PYTHON:-python3}
convert=("$python" jobscripts/parquet_to_jsonl.py)
if ! "$python" -c "import pyarrow.parquet" 2> /dev/null; then
  echo "LEFT OUT: real Parquet files: Python has no pyarrow (pip install pyarrow; PYTHON names a Python that has it)"
  mkdir -p "$work/stub/pyarrow"
  : > "$work/stub/pyarrow/__init__.py"
  cat > "$work/stub/pyarrow/parquet.py" << 'PY'
import json
class Column(list):
    def to_pylist(self):
        return self
class ParquetFile:
    def __init__(self, name):
        with open(name) as file:
            self.columns = json.load(file)
        self.schema_arrow = type("Schema", (), {"names": list(self.columns)})
    def iter_batches(self, batch_size, columns):
        values = self.columns[columns[0]]
        for i in range(0, len(values), batch_size):
            yield type("Batch", (), {"column": lambda self, number: Column(values[i:i + batch_size])})()
def write(name, columns):
    with open(name, "w") as file:
        json.dump(columns, file)
PY
  convert=(env "PYTHONPATH=$work/stub" "${convert[@]}")
fi
"${convert[@]:0:${#convert[@]}-1}" - "$work" << 'PY'
import json, sys
work = sys.argv[1]
rows = [f"text {i}: Zürich \U0001f642\n\"quoted\"" * (i % 4) for i in range(700)] + [None, "the last one"]
columns = {"text": rows, "number": [i for i in range(len(rows))]}
try:
    import pyarrow
    from pyarrow import parquet
    write = lambda name, data: parquet.write_table(pyarrow.table(data), name, row_group_size=300)
    write(work + "/a.parquet", columns)
except AttributeError:
    write = parquet.write
    write(work + "/a.parquet", columns)
write(work + "/b.parquet", {"content": ["another file"]})
with open(work + "/expected.jsonl", "w") as out:
    for text in rows:
        if text:
            out.write(json.dumps({"text": text}) + "\n")
PY

expect 0 "526 texts" "${convert[@]}" "$work/a.parquet" --output "$work/a.jsonl"
cmp "$work/expected.jsonl" "$work/a.jsonl" || fail "other texts than the column's"
expect 0 "526 texts" "${convert[@]}" "$work/a.parquet" --output "$work/a.jsonl.gz"
gzip -dc "$work/a.jsonl.gz" | cmp - "$work/expected.jsonl" || fail "other texts in the compressed file"
expect 0 "1 texts" "${convert[@]}" "$work/b.parquet" --field content --output "$work/b.jsonl"
expect 0 "527 documents" "$forge" tokenize "$work/a.jsonl.gz" "$work/b.jsonl" --tokenizer tests/tokenizer/data/gpt2 --output "$work/x.bin"

expect 2 "legal: a name that ends in .jsonl" "${convert[@]}" "$work/a.parquet" --output "$work/c.txt"
expect 2 "no column content; legal: --field with one of text, number" "${convert[@]}" "$work/a.parquet" --field content --output "$work/c.jsonl"
expect 2 "row 0 of the column number is int; legal: text" "${convert[@]}" "$work/a.parquet" --field number --output "$work/c.jsonl"
expect 2 "expected.jsonl: no Parquet file" "${convert[@]}" "$work/a.parquet" "$work/expected.jsonl" --output "$work/c.jsonl.gz"
expect 2 "none.parquet: no Parquet file" "${convert[@]}" "$work/none.parquet" --output "$work/c.jsonl"
[ -z "$(find "$work" -name 'c.*')" ] || fail "a failure leaves $(find "$work" -name 'c.*')"
for more in "--tokenizer tests/tokenizer/data/gpt2" ""; do
  read -ra words <<< "$more"
  expect 2 "a.parquet: a Parquet file" "$forge" tokenize "$work/a.parquet" "${words[@]}" --output "$work/x.bin"
done
finish
