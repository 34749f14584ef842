"""Write a tiny Llama's configuration and a tokenizer trained on the spot: `make_model.py DIR`.

Runs inside the engines' environment. The engines fill the weights with random numbers; what the
model says is noise, but every step of serving it is real.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXT = "the quick brown fox jumps over the lazy dog, hello world. "
VOCABULARY = 512
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,  # the CPU attention kernel does not bear smaller ones
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def main(argv: list[str]) -> int:
    """Write config.json and the tokenizer's files into the directory."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found]

    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([TEXT] * 50, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(str(out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
