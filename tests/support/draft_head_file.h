// Tiny models with a draft head (model/draft_head.h).
#pragma once

#include <functional>
#include <string>

#include "support/dflash_head_file.h"
#include "support/hf_folder.h"
#include "support/tiny_gguf.h"

namespace weft::support {

// Names of models whose EAGLE-3 or DFlash head is in a folder (WriteSeparateHead).
inline constexpr const char* kEagle = "eagle";
inline constexpr const char* kDflash = "dflash";
inline bool HasSeparateHead(const std::string& name) {
    return name == kEagle || name == kDflash;
}

// sure: the layers add so little that each token depends only on the one before it, and the head
// computes the same function. Otherwise its drafts are random.
inline TinyFile HeadFile(const std::string& name, bool sure) {
    const bool apart = HasSeparateHead(name);
    TinyFile file{.hyper = OddHyper(apart ? "llama" : name)};
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
    if (apart) {
        h.layers = 8;
        h.draft_head = false;
        h.moe = {};
        file.form.dense_layers = 0;
    }
    return file;
}

// Writes the folder of an EAGLE-3 head for the model in the file `model`. sure: as for HeadFile.
// left_out: number of tokens that the head cannot draft.
// The queries and keys of such a head are constant, so that a row reads its own value alone: the
// embedding of the next token, as it stands in the residual stream of a sure model.
inline void WriteEagleHead(const std::string& folder, const std::string& model, bool sure,
                           int64_t left_out = 0) {
    constexpr int64_t kHidden = 144, kFfn = 96, kHeads = 9;
    constexpr float kSharp = 8;
    const auto source = model_files::OpenModel(model).value();
    const auto read = [&](const char* name) {
        return source->ReadFloats(*source->FindTensor(name)).value();
    };
    std::map<std::string, SafeBytes> tensors;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                         const std::function<float(int64_t, int64_t)>& value) {
        if (!sure) {
            tensors[name] = HfGolden::Make(name, "F32", shape, 1);
            return;
        }
        std::vector<float> values;
        const int64_t cols = shape.back();
        for (int64_t row = 0; row < (shape.size() == 1 ? 1 : shape[0]); ++row) {
            for (int64_t col = 0; col < cols; ++col) values.push_back(value(row, col));
        }
        tensors[name] = {"F32", std::move(shape), BytesOfValues(values)};
    };
    const auto constant = [](float value) { return [=](int64_t, int64_t) { return value; }; };
    // Values subtract the state, to which the layer adds.
    const auto diagonal = [](int64_t row, int64_t col) {
        return row == col ? 1.0f : col == row + kHidden ? -1.0f : 0.0f;
    };
    for (const std::string part : {"q", "k", "v", "o"}) {
        const std::string name = "midlayer.self_attn." + part + "_proj";
        const bool copies = part == "v" || part == "o";
        add(name + ".weight", {kHidden, part == "o" ? kHidden : 2 * kHidden},
            [&](int64_t row, int64_t col) { return copies ? diagonal(row, col) : 0; });
        add(name + ".bias", {kHidden}, constant(copies ? 0 : kSharp));
    }
    add("fc.weight", {kHidden, 3 * kHidden}, constant(0));
    add("midlayer.mlp.gate_proj.weight", {kFfn, kHidden}, constant(0));
    add("midlayer.mlp.up_proj.weight", {kFfn, kHidden}, constant(0));
    add("midlayer.mlp.down_proj.weight", {kHidden, kFfn}, constant(0));
    for (const char* norm : {"input_layernorm", "hidden_norm", "post_attention_layernorm"}) {
        add(fmt::format("midlayer.{}.weight", norm), {kHidden}, constant(1));
    }
    const std::vector<float> last = read("output_norm.weight"), output = read("output.weight");
    const int64_t vocab = std::ssize(output) / kHidden, drafts = vocab - left_out;
    // The head numbers the tokens backwards.
    std::vector<int64_t> d2t;
    for (int64_t draft = 0; draft < drafts; ++draft) d2t.push_back(vocab - 1 - 2 * draft);
    tensors["d2t"] = {"I64", {drafts}, BytesOfValues(d2t)};
    add("norm.weight", {kHidden},
        [&](int64_t, int64_t col) { return last[static_cast<size_t>(col)]; });
    add("lm_head.weight", {drafts, kHidden}, [&](int64_t row, int64_t col) {
        const int64_t token = row + d2t[static_cast<size_t>(row)];
        return output[static_cast<size_t>(token * kHidden + col)];
    });
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLMEagle3"}},
                                   {"model_type", "llama"},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", kHidden},
                                   {"intermediate_size", kFfn},
                                   {"num_attention_heads", kHeads},
                                   {"num_key_value_heads", kHeads},
                                   {"num_hidden_layers", 1},
                                   {"rms_norm_eps", 1e-5},
                                   {"attention_bias", true},
                                   {"vocab_size", vocab},
                                   {"draft_vocab_size", drafts}};
    std::filesystem::create_directories(folder);
    WriteText(folder + "/config.json", config.dump());
    WriteTensors(folder, tensors);
}

// Writes the folder of the head of HeadFile(name).
inline void WriteSeparateHead(const std::string& name, const std::string& folder,
                              const std::string& model, bool sure) {
    if (name == kEagle) WriteEagleHead(folder, model, sure);
    if (name == kDflash) WriteDflashHead(folder, model, sure);
}

}  // namespace weft::support
