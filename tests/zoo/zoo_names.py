"""The architectures of `make zoo`: those that run eagerly when shrunk by the rules of `zoo_build`.

Parts of other models and the latest renamings of one architecture are left to `--all`.
"""

NAMES = (
    "afmoe", "aimv2", "albert", "altclip", "apertus", "arcee", "audioflamingo3", "bailing_hybrid", "bamba",
    "bart", "beit", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt", "bitnet", "blenderbot",
    "blenderbot-small", "blip", "bloom", "camembert", "canine", "chinese_clip", "clip", "clipseg", "cohere",
    "cohere2", "cohere2_moe", "convbert", "convnext", "convnextv2", "ctrl", "cwm", "data2vec-audio",
    "data2vec-text", "data2vec-vision", "deberta", "deberta-v2", "deepseek_v4", "deit", "diffllama", "dinov2",
    "dinov2_with_registers", "dinov3_convnext", "dinov3_vit", "distilbert", "doge", "dpr", "dpt", "electra",
    "ernie", "ernie4_5", "eurobert", "exaone4", "exaone_moe", "falcon", "falcon_h1", "falcon_mamba", "flaubert",
    "flava", "flex_olmo", "fnet", "focalnet", "fsmt", "gemma", "gemma2", "git", "glm", "glm4", "glm4_moe",
    "glmasr", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "granite",
    "granite_speech", "granite_speech_plus", "granite_swa", "granitemoe", "granitemoe_swa", "granitemoehybrid",
    "granitemoeshared", "groupvit", "gte", "helium", "hiera", "higgs_audio_v2", "hubert", "hyperclovax",
    "ibert", "ijepa", "imagegpt", "jamba", "jetmoe", "jina_embeddings_v3", "kosmos-2.5", "layoutlm", "led",
    "lfm2", "llama", "longformer", "longt5", "m2m_100", "mamba", "marian", "mbart", "megatron-bert",
    "metaclip_2", "mimo_v2_flash", "minicpm3", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "minimax",
    "minimax_m2", "ministral3", "mistral", "mixtral", "mlcd", "mobilebert", "modernbert", "modernbert-decoder",
    "moonshine", "moshi", "moss_transcribe_diarize", "mpt", "mra", "mt5", "musicflamingo", "mvp", "nanochat",
    "nemotron_h", "nllb-moe", "nomic_bert", "nystromformer", "olmo", "olmo2", "olmo3", "olmo_hybrid", "olmoe",
    "openai-gpt", "openai_privacy_filter", "opt", "pegasus", "pegasus_x", "persimmon", "phi", "phi3", "phimoe",
    "pixio", "pixtral", "plbart", "poolformer", "prophetnet", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "qwen3_next", "recurrent_gemma", "regnet", "rembert", "resnet", "roberta",
    "roberta-prelayernorm", "roformer", "rwkv", "sam3_vit_model", "sapiens2", "seed_oss", "segformer", "sew",
    "sew-d", "siglip", "smollm3", "solar_open", "splinter", "squeezebert", "stablelm", "starcoder2",
    "swiftformer", "swin", "swinv2", "switch_transformers", "t5", "t5gemma", "tapas", "tipsv2", "umt5",
    "unispeech", "unispeech-sat", "vaultgemma", "vilt", "vision-text-dual-encoder", "visual_bert", "vit",
    "vit_msn", "vitdet", "voxtral", "wav2vec2", "wav2vec2-conformer", "wavlm", "whisper", "xglm",
    "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xlstm", "yolos", "yoso", "zaya",
)  # fmt: skip
