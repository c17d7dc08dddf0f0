"""Low-rank adapters by the peft package: for reference.py and make_reference.py."""

import json
import os

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file


class Expert(torch.nn.Module):
    """A gated feed-forward layer with a module for each matrix."""

    def __init__(self, gate_up, down, activation):
        super().__init__()
        for name, weight in zip(("gate_proj", "up_proj", "down_proj"), (*gate_up.chunk(2), down)):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta", dtype=weight.dtype)
            linear.weight = torch.nn.Parameter(weight.detach().clone())
            setattr(self, name, linear)
        self.activation = activation

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Experts(torch.nn.ModuleList):
    """The experts of a layer by their own names, as transformers had them before it packed them into one tensor."""

    def __init__(self, packed):
        super().__init__(
            Expert(gate_up, down, packed.act_fn) for gate_up, down in zip(packed.gate_up_proj, packed.down_proj)
        )

    def forward(self, hidden_states, top_k_index, top_k_weights):
        result = torch.zeros_like(hidden_states)
        for number, expert in enumerate(self):
            row, place = torch.where(top_k_index == number)
            if len(row) > 0:
                result.index_add_(0, row, expert(hidden_states[row]) * top_k_weights[row, place, None])
        return result


def unpack_experts(model):
    """Gives each expert a module for each matrix, in place: the package peft puts adapters beside modules."""
    for module in list(model.modules()):
        packed = getattr(module, "experts", None)
        if hasattr(packed, "gate_up_proj"):
            module.experts = Experts(packed)


def write(model, directory, options, seed):
    """PEFT's directory of random adapters of a model, none of whose matrices is 0. options: the deck's adapter section."""
    torch.manual_seed(seed)
    unpack_experts(model)
    config = LoraConfig(
        r=options["rank"],
        lora_alpha=options["alpha"],
        use_rslora=options.get("rank_stabilised", False),
        target_modules=options["targets"],
        fan_in_fan_out=model.config.model_type == "gpt2",
        base_model_name_or_path=None,
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.save_pretrained(directory)
    os.remove(os.path.join(directory, "README.md"))
    path = os.path.join(directory, "adapter_config.json")
    with open(path) as file:
        saved = json.load(file)
    problem = os.path.basename(os.path.dirname(directory))
    saved |= {"base_model_name_or_path": f"verify/{problem}/model", "target_modules": options["targets"]}
    with open(path, "w") as file:
        json.dump(saved, file, indent=2)
        file.write("\n")


def attach(model, directory):
    """Puts a directory's adapters beside the matrices of a model, in place: they alone are trained."""
    dtype = next(model.parameters()).dtype
    unpack_experts(model)
    config = LoraConfig.from_pretrained(directory)
    config.inference_mode = False
    get_peft_model(model, config, autocast_adapter_dtype=False)
    # Not by PeftModel.from_pretrained, which packs the tensors of experts as transformers does.
    tensors, trained = load_file(os.path.join(directory, "adapter_model.safetensors")), parameters(model)
    if tensors.keys() != trained.keys():
        raise KeyError(f"{directory} has other tensors than the model's adapters")
    for name, parameter in trained.items():
        parameter.data.copy_(tensors[name])
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def parameters(model):
    """Name to parameter, as PEFT's files have them."""
    return {
        "base_model.model." + name.replace(".default", ""): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
