#!/usr/bin/env python3
"""fp8_files.py FORGE: Hugging Face directories with weights in E4M3 and block scales, written by forge export and read by model.hf,
against this file's own table of E4M3 and its own reader and writer of safetensors."""
import bisect
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

FORGE = os.path.abspath(sys.argv[1])
BLOCK = 128
DECK = """model: {{{1}}}
train: {{steps: 1, global_batch_sequences: 4, microbatch_sequences: 2, sequence_tokens: 8, precision: fp32}}
optimizer: {{learning_rate: 0.01}}
data: {{files: [{0}/tokens.bin], dtype: uint16}}
output: {{directory: {0}/run}}
machine: {{workspace_mib: 1, peak_tflops: 1, threads: 1}}
"""
MODEL = """family: deepseek_v3, layers: 2, width: 144, heads: 4, attention: mla, q_lora: 20, kv_lora: 12, nope_dim: 6, rope_dim: 4,
  value_dim: 40, ffn: 200, vocabulary: 64, experts: 4, experts_per_token: 2, expert_ffn: 136, shared_expert_ffn: 136, first_dense_layers: 1,
  latent_norm_epsilon: 1e-6, router_score: sigmoid, router_bias: true, router_group_score: top2_sum, mtp_depth: 1, initial_std: 0.2"""
GPT2 = """family: gpt2, layers: 1, width: 16, heads: 2, ffn: 24, vocabulary: 64, norm: layernorm, positions: learned, max_positions: 8,
  activation: gelu, qkv_bias: true, attention_out_bias: true, mlp_bias: true"""
# OFP8, 2023: the numbers of codes 0 to 126; 127 is NaN.
E4M3 = [m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]
MIDDLES = [(a + b) / 2 for a, b in zip(E4M3, E4M3[1:])]
CODES = [*E4M3, math.nan, *(-value for value in E4M3), math.nan]
FORMATS = {"F32": "f", "F64": "d"}
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what)


def run(*arguments, code=0, text=""):
    done = subprocess.run([FORGE, *map(str, arguments)], capture_output=True, text=True)
    output = done.stdout + done.stderr
    expect(done.returncode == code and text in output, f"{arguments}: code {done.returncode}, '{text}' in {output.strip()[-900:]}")
    return output


def sets(*keys):
    return [word for key in keys for word in ("--set", key)]


def deck_of(work, model):
    """A deck with these keys of the model, or with that of a directory."""
    if isinstance(model, pathlib.Path):
        model = f"hf: {model}, load_weights: true, mtp_depth: 1"
    deck = work / "deck.yaml"
    deck.write_text(DECK.format(work, model))
    return deck


def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def read(folder):
    """{name: (dtype, shape, bytes)} of all files of a directory."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        for name, entry in json.loads(content[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = (entry["dtype"], entry["shape"], content[8 + length + begin : 8 + length + end])
    return tensors


def write(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def numbers(tensor):
    return struct.unpack(f"<{len(tensor[2]) // struct.calcsize(FORMATS[tensor[0]])}{FORMATS[tensor[0]]}", tensor[2])


def code_of(x):
    """Nearest, ties to the even code, beyond the last one the last."""
    a = abs(x)
    code = bisect.bisect_left(MIDDLES, a)
    if code < len(MIDDLES) and MIDDLES[code] == a and code % 2 == 1:
        code += 1
    return code | (128 if math.copysign(1, x) < 0 else 0)


def quantised(values, rows, columns):
    """Codes and inverse scales, a power of two for each block."""
    across = -(-columns // BLOCK)
    block = [i // BLOCK * across + j // BLOCK for i in range(rows) for j in range(columns)]
    amax = [0.0] * (-(-rows // BLOCK) * across)
    for value, b in zip(values, block):
        amax[b] = max(amax[b], abs(value))
    scale = [2.0 ** math.floor(math.log2(448 / a)) if a else 1.0 for a in amax]
    return bytes(code_of(value * scale[b]) for value, b in zip(values, block)), [1 / s for s in scale]


def dequantised(tensors, rounds):
    """{name: values} of all weights but for the scales; `rounds`: to fp32."""
    result = {}
    for name, (dtype, shape, content) in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        if dtype == "F8_E4M3":
            scale, across = numbers(tensors[name + "_scale_inv"]), -(-shape[1] // BLOCK)
            exact = [CODES[code] * scale[i // shape[1] // BLOCK * across + i % shape[1] // BLOCK] for i, code in enumerate(content)]
            result[name] = [fp32(value) for value in exact] if rounds else exact
        elif dtype == "BF16":
            result[name] = [struct.unpack("<f", b"\0\0" + content[i : i + 2])[0] for i in range(0, len(content), 2)]
        else:
            result[name] = list(numbers((dtype, shape, content)))
    return result


def check_export(plain, scaled, config):
    linear = re.compile(r"(_proj|kv_a_proj_with_mqa)\.weight$")
    several = 0
    for name, (dtype, shape, _) in plain.items():
        values = numbers(plain[name])
        if not linear.search(name) or name.endswith("eh_proj.weight"):
            expect(scaled[name][0] == ("F32" if name.endswith(("correction_bias", "mlp.gate.weight")) else "BF16"), f"{name} is {scaled[name][0]}")
            module = name.removesuffix(".weight")
            listed = len(shape) == 2 and "embed_tokens" not in name
            expect(listed == (module in config["quantization_config"]["modules_to_not_convert"]), f"{module} in modules_to_not_convert")
            continue
        codes, scales = quantised(values, *shape)
        several += len(scales) > 1
        expect(scaled[name][0] == "F8_E4M3" and scaled[name][1] == shape, f"{name} is {scaled[name][:2]}")
        expect(scaled[name][2] == codes, f"{name} has other codes")
        kept = scaled[name + "_scale_inv"]
        expect(kept[0] == "F32" and kept[1] == [-(-extent // BLOCK) for extent in shape], f"scales of {name} are {kept[:2]}")
        expect(list(numbers(kept)) == scales, f"{name} has other scales")
    expect(several > 10, f"only {several} tensors have several blocks")
    expect(len(scaled) > len(plain), "no scales")
    wanted = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    expect(wanted.items() <= config["quantization_config"].items(), f"config.json says {config['quantization_config']}")


def check_import(work, folder, tensors, precision, *layout):
    """What a run of no step's length holds is what the files say."""
    keys = ("optimizer.learning_rate=0", "output.save_hf=true", f"train.precision={precision}", *layout[1:])
    run(deck_of(work, folder), *sets(*keys), *(["--ranks", layout[0]] if layout else []))
    held, wanted = read(work / "run" / "hf"), dequantised(tensors, precision == "fp32")
    expect(held.keys() == wanted.keys(), f"{precision}: other tensors")
    for name, values in wanted.items():
        expect(list(numbers(held[name])) == values, f"{precision} {layout}: {name} is read as other numbers")


def check_refusals(work, config, tensors):
    name = "model.layers.1.mlp.experts.1.up_proj.weight"
    scales = name + "_scale_inv"
    dtype, shape, content = tensors[name]

    def refused(text, changes=(), **quantization):
        """With a key of quantization_config, or tensors of other type, shape and bytes (None: without them)."""
        folder = work / "refused"
        shutil.rmtree(folder, ignore_errors=True)
        said = {**config["quantization_config"], **quantization}
        said = {key: value for key, value in said.items() if value is not None}
        changed = {key: value for key, value in {**tensors, **dict(changes)}.items() if value is not None}
        write(folder, {**config, "quantization_config": said or None}, changed)
        run("evaluate", deck_of(work, folder), code=2, text=text)

    refused("weight_block_size = a list; legal: [128, 128]", weight_block_size=[64, 64])
    refused("weight_block_size: missing", weight_block_size=None)
    refused("quant_method = 'gptq'; legal: fp8", quant_method="gptq")
    refused("quant_method = 5; legal: fp8", quant_method=5)
    refused("activation_scheme = 'static'; legal: dynamic", activation_scheme="static")
    refused("fmt = 'e5m2'; legal: e4m3", fmt="e5m2")
    refused("but config.json has no quantization_config", **dict.fromkeys(config["quantization_config"]))
    refused(f"{name} has no scales: tensor {scales} [2, 2] is missing", {scales: None})
    refused(f"{scales} is F32 [4]; legal: F32 [2, 2]", {scales: ("F32", [4], tensors[scales][2])})
    refused(f"{scales} is BF16 [2, 2]; legal: F32", {scales: ("BF16", [2, 2], bytes(8))})
    refused(f"{name} has dtype BF16 and scales", {name: ("BF16", shape, content * 2)})
    refused(f"{name} has dtype I8; legal: F64 | F32 | BF16 | F16 | F8_E4M3", {name: ("I8", shape, content)})
    at = 130 * shape[1] + 5
    refused(f"{name} is not finite at [130, 5]", {name: (dtype, shape, content[:at] + b"\xff" + content[at + 1 :])})
    for bad in (math.nan, -1.0, math.inf):
        refused(f"{scales} has {str(bad)[:2]}", {scales: ("F32", [2, 2], struct.pack("<4f", 1, 1, bad, 1))})


def main():
    with tempfile.TemporaryDirectory() as folder:
        work, draw = pathlib.Path(folder), random.Random(18)
        (work / "tokens.bin").write_bytes(struct.pack("<400H", *(draw.randrange(64) for _ in range(400))))
        run(deck_of(work, MODEL), *sets(f"checkpoint.directory={work}/saved"))
        run("export", work / "saved", "--output", work / "plain")
        run("export", work / "saved", "--output", work / "scaled", "--type", "fp8")
        plain, scaled = read(work / "plain"), read(work / "scaled")
        config = json.loads((work / "scaled" / "config.json").read_text())
        check_export(plain, scaled, config)
        check_import(work, work / "scaled", scaled, "fp32")
        # scales that are no powers of two
        odd = {
            name: (t[0], t[1], struct.pack(f"<{len(t[2]) // 4}f", *(s * draw.uniform(0.5, 2) for s in numbers(t))) if "_scale_inv" in name else t[2])
            for name, t in scaled.items()
        }
        write(work / "odd", config, odd)
        check_import(work, work / "odd", odd, "fp32")
        check_import(work, work / "odd", odd, "fp64", 4, "mesh.tp=2", "mesh.ep=2", "mesh.etp=1", "train.zero_stage=3")
        check_refusals(work, config, scaled)
        run(deck_of(work, GPT2), *sets(f"checkpoint.directory={work}/gpt2"))
        run("export", work / "gpt2", "--output", work / "none", "--type", "fp8", code=2, text="--type fp8: family gpt2")
        run("export", work / "gpt2", "--output", work / "none", "--type", "int4", code=2, text="legal are fp32, bf16 and fp8")
    print(f"{len(failures)} failures" if failures else "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
