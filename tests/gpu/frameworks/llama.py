# SPDX-License-Identifier: Apache-2.0
"""A small Llama of transformers with random weights, and tokens to train it with."""
import common

SIZES = {"hidden": 4096, "inner": 14336, "head": 128, "vocabulary": 16384, "layers": 4, "tokens": 2048, "batch": 2}
ONE_GPU = {"hidden": 1024, "inner": 2816, "vocabulary": 4096, "tokens": 512}
CPU = {"hidden": 64, "inner": 128, "head": 16, "vocabulary": 256, "layers": 2, "tokens": 16}


def make(o, device):
    """Equal on all ranks."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    heads = o.hidden // o.head
    config = transformers.LlamaConfig(
        hidden_size=o.hidden, intermediate_size=o.inner, num_hidden_layers=o.layers, num_attention_heads=heads,
        num_key_value_heads=max(heads // 2, common.RANKS), vocab_size=o.vocabulary, use_cache=False,
        max_position_embeddings=o.tokens, tie_word_embeddings=False,
    )
    torch.manual_seed(o.seed)
    with torch.device(device):
        return transformers.LlamaForCausalLM(config)


def tokens(o, device, seed):
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, o.vocabulary, (o.batch, o.tokens), generator=generator).to(device)


def version():
    import transformers

    return transformers.__version__
