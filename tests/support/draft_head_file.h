// Tiny models with a draft head (model/draft_head.h).
#pragma once

#include <string>

#include "support/tiny_gguf.h"

namespace weft::support {

// sure: the layers add so little that each token follows from the one before it, which the head
// knows. Otherwise its drafts are random.
inline TinyFile HeadFile(const std::string& name, bool sure) {
    TinyFile file{.hyper = OddHyper(name)};
    model::Hyper& h = file.hyper;
    h.layers = 2;
    h.hidden = 144;
    h.ffn = 96;
    h.draft_head = true;
    h.moe.experts = 10;
    h.moe.used = 3;
    h.moe.ffn = 96;
    file.form.dense_layers = 1;
    if (name == "deepseek2") {
        h.latent = {.rank = 64, .q_rank = 0, .nope = 32, .rope = 16, .value = 24};
        h.head_dim = 48;
        h.rotary_dim = 16;
        h.moe.shared_ffn = 192;
    }
    if (name.starts_with("qwen3")) {
        h.moe = {};
        AddState(h, name == "qwen35");
    }
    // Embedding rows have length 1. Layers add vectors of about 12 times the scale.
    if (sure) file.form.layer_scale = 0.002f;
    return file;
}

}  // namespace weft::support
