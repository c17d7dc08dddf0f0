"""Low-rank adapters by the peft package: for reference.py and make_reference.py."""

import json
import os

import torch
from peft import LoraConfig, PeftModel, get_peft_model


def write(model, directory, options, seed):
    """PEFT's directory of random adapters of a model, none of whose matrices is 0. options: the deck's adapter section."""
    torch.manual_seed(seed)
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
    PeftModel.from_pretrained(model, directory, is_trainable=True, autocast_adapter_dtype=False)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def parameters(model):
    """Name to parameter, as PEFT's files have them."""
    return {
        "base_model.model." + name.replace(".default", ""): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
