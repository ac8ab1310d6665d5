// Tiny models as GGUF files: tensors by the formula of tiny_model.h in any dtype, and a byte-level
// vocabulary of the model's size.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "model_files/gguf_writer.h"
#include "model_files/write_tokenizer.h"
#include "support/tiny_model.h"
#include "support/tiny_vocabulary.h"
#include "tensor/quant.h"

namespace weft::support {

struct TinyFile {
    model::Hyper hyper;
    DType dtype = DType::kF32;
    bool dequantized = false;  // values rounded to `dtype`, written as F32
    double rope_base = 10000;
    double rope_linear = 0;                               // factor of linear scaling; 0: none
    std::map<std::string, std::vector<float>> vectors{};  // further tensors: RoPE's factors
    // Further keys after the architecture's name: u32 for counts, else f32.
    std::map<std::string, double> numbers{};
    std::map<std::string, std::string> strings{};
    std::map<std::string, bool> bools{};
    std::vector<bool> windowed{};  // attention.sliding_window_pattern; empty: none
    std::string architecture{};    // as written in the file; empty: hyper's
    TinyForm form{};
    int64_t vocabulary = 0;  // tokens of the tokenizer; 0: the embedding's rows
    std::optional<tokenizer::TokenizerData> tokenizer{};  // replaces WriteVocabulary's
    std::string chat_template{};                          // empty: none
    std::string tool_template{};                          // for conversations with tools
};

// Nine query heads over three KV heads of 32 columns; no power of two except where K-quants need
// one.
inline model::Hyper OddHyper(const std::string& architecture = "llama") {
    model::Hyper h;
    h.architecture = architecture;
    h.layers = 3;
    h.hidden = 256;
    h.ffn = 1024;
    h.heads = 9;
    h.kv_heads = 3;
    h.head_dim = 32;
    h.rotary_dim = 32;
    h.vocab = 267;
    h.context = 512;
    h.rms_eps = 1e-5f;
    h.tied = false;
    return h;
}

// The same with a sixth of the arithmetic, for tests that train; their dtypes need no larger
// blocks. The feed-forward part has ten blocks of 32: uneven over three ranks.
inline model::Hyper TrainHyper(const std::string& architecture = "llama") {
    model::Hyper h = OddHyper(architecture);
    h.hidden = 96;
    h.ffn = 320;
    return h;
}

// The dtype of a tensor with `cols` columns if `dtype` is requested.
inline DType FittingType(DType dtype, int64_t cols, int64_t rows) {
    if (rows == 1) return DType::kF32;
    if (cols % Info(dtype).block_elements == 0) return dtype;
    return cols % 32 == 0 ? DType::kQ8_0 : DType::kF32;
}

inline std::vector<std::byte> TensorBytes(const TinyTensor& tensor, DType dtype, bool dequantized) {
    const auto cols = static_cast<size_t>(tensor.cols);
    const auto row_bytes = static_cast<size_t>(RowBytes(dtype, tensor.cols));
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.rows) * row_bytes);
    std::vector<float> plain(dequantized ? tensor.data.size() : 0);
    for (size_t row = 0; row < static_cast<size_t>(tensor.rows); ++row) {
        const auto out = std::span(bytes).subspan(row * row_bytes, row_bytes);
        QuantizeRow(dtype, std::span(tensor.data).subspan(row * cols, cols), out);
        if (dequantized) DequantizeRow(dtype, out, std::span(plain).subspan(row * cols, cols));
    }
    if (!dequantized) return bytes;
    const auto floats = std::as_bytes(std::span(plain));
    return {floats.begin(), floats.end()};
}

inline void WriteVocabulary(model_files::GgufWriter& writer, int64_t size) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair({"h e", "l l", "he ll", "t h", "th e"});
    while (static_cast<int64_t>(data.tokens.size()) < size) {
        data.tokens.push_back("<unused" + std::to_string(data.tokens.size()) + ">");
        data.types.push_back(static_cast<int32_t>(tokenizer::TokenType::kUnused));
    }
    writer.String("tokenizer.ggml.model", data.model);
    writer.String("tokenizer.ggml.pre", data.pre);
    writer.Strings("tokenizer.ggml.tokens", data.tokens);
    writer.I32s("tokenizer.ggml.token_type", data.types);
    writer.Strings("tokenizer.ggml.merges", data.merges);
    writer.U32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(data.eos));
}

// One number, or one for each layer.
inline void WriteKvHeads(model_files::GgufWriter& writer, const std::string& name,
                         const model::Hyper& h) {
    const auto u32 = [&](const char* key, int64_t value) {
        writer.U32(name + "." + key, static_cast<uint32_t>(value));
    };
    const bool windowed = h.windowed_heads.head_dim != 0;
    const bool recurrent = h.has_state() && h.recurrent.kind != model::Recurrent::Kind::kDeltaNet;
    if (!windowed && !recurrent) return u32("attention.head_count_kv", h.kv_heads);
    std::vector<int32_t> kv_heads;
    for (int64_t layer = 0; layer < h.layers; ++layer) {
        const bool none = recurrent && (layer + 1) % 4 != 0;
        const int64_t whole = h.latent.rank > 0 ? 1 : h.HeadsOf(layer).kv_heads;
        kv_heads.push_back(none ? 0 : static_cast<int32_t>(whole));
    }
    writer.I32s(name + ".attention.head_count_kv", kv_heads);
    if (!windowed) return;
    u32("attention.key_length_swa", h.windowed_heads.head_dim);
    u32("attention.value_length_swa", h.windowed_heads.head_dim);
    u32("rope.dimension_count_swa", h.windowed_heads.rotary_dim);
}

inline void WriteExpertKeys(model_files::GgufWriter& writer, const model::Moe& moe,
                            const std::string& prefix) {
    const auto u32 = [&](const char* key, int64_t value) {
        if (value > 0) writer.U32(prefix + key, static_cast<uint32_t>(value));
    };
    const bool sigmoid = moe.route.score == program::GateScore::kSigmoid;
    u32("expert_count", moe.experts);
    u32("expert_used_count", moe.used);
    u32("expert_feed_forward_length", moe.ffn);
    u32("expert_shared_feed_forward_length", moe.shared_ffn);
    u32("expert_gating_func", sigmoid ? 2 : 0);
    if (moe.route.groups > 1) {
        u32("expert_group_count", moe.route.groups);
        u32("expert_group_used_count", moe.route.groups_used);
    }
    if (moe.route.scale != 1) writer.F32(prefix + "expert_weights_scale", moe.route.scale);
    if (sigmoid) writer.Bool(prefix + "expert_weights_norm", moe.route.renormalise);
}

// Files with latent attention store the cached width as the head size, and the real head size
// separately.
template <typename U32>
void WriteHeadKeys(const U32& u32, const model::Hyper& h) {
    const model::Latent& m = h.latent;
    if (m.rank == 0) {
        u32("attention.key_length", h.head_dim);
        u32("attention.value_length", h.head_dim);
        return;
    }
    u32("attention.kv_lora_rank", m.rank);
    if (m.q_rank > 0) u32("attention.q_lora_rank", m.q_rank);
    u32("attention.key_length", m.rank + m.rope);
    u32("attention.value_length", m.rank);
    u32("attention.key_length_mla", m.nope + m.rope);
    u32("attention.value_length_mla", m.value);
}

// One bool for each layer.
inline void WriteBools(model_files::GgufWriter& writer, const std::string& key,
                       const std::vector<bool>& layers) {
    if (layers.empty()) return;
    std::vector<std::byte> array(12);
    array[0] = static_cast<std::byte>(model_files::MetaType::kBool);
    array[4] = static_cast<std::byte>(layers.size());
    for (bool layer : layers) array.push_back(static_cast<std::byte>(layer));
    writer.Raw(key, model_files::MetaType::kArray, array);
}

template <typename U32>
void WriteIndexerKeys(const U32& u32, const model::Indexer& indexer) {
    u32("attention.indexer.head_count", indexer.heads);
    u32("attention.indexer.key_length", indexer.dim);
    const int64_t each = std::max<int64_t>(indexer.block, 1);
    u32("attention.indexer.top_k", indexer.top / each);
    if (indexer.block == 0) return;
    u32("attention.indexer.block_size", indexer.block);
    u32("attention.indexer.local_blocks", indexer.local);
}

template <typename U32>
void WriteStateKeys(const U32& u32, const model::Recurrent& r) {
    if (r.kind == model::Recurrent::Kind::kShortConv) return u32("shortconv.l_cache", r.taps);
    if (r.kind == model::Recurrent::Kind::kKimiDelta) u32("kda.head_dim", r.key_dim);
    u32("ssm.conv_kernel", r.taps);
    if (r.kind == model::Recurrent::Kind::kKimiDelta) return;
    u32("ssm.state_size", r.key_dim);
    u32("ssm.group_count", r.key_heads);
    u32("ssm.time_step_rank", r.heads);
    u32("ssm.inner_size", r.heads * r.value_dim);
    u32("full_attention_interval", 4);
}

inline void WriteTinyGguf(const std::string& path, const TinyFile& file) {
    const model::Hyper& h = file.hyper;
    const std::string name = file.architecture.empty() ? h.architecture : file.architecture;
    model_files::GgufWriter writer;
    writer.String("general.architecture", name);
    const auto u32 = [&](const char* key, int64_t value) {
        writer.U32(name + "." + key, static_cast<uint32_t>(value));
    };
    u32("block_count", h.layers + (h.draft_head ? 1 : 0));
    if (h.draft_head) u32("nextn_predict_layers", 1);
    u32("context_length", h.context);
    u32("embedding_length", h.hidden);
    u32("feed_forward_length", h.ffn);
    u32("attention.head_count", h.heads);
    const bool one = h.latent.rank > 0 && !h.has_state();
    one ? u32("attention.head_count_kv", 1) : WriteKvHeads(writer, name, h);
    WriteHeadKeys(u32, h);
    u32("rope.dimension_count", h.rotary_dim);
    if (h.has_state()) WriteStateKeys(u32, h.recurrent);
    if (h.indexer.top > 0) WriteIndexerKeys(u32, h.indexer);
    writer.F32(name + ".attention.layer_norm_rms_epsilon", h.rms_eps);
    if (h.moe.experts > 0) WriteExpertKeys(writer, h.moe, name + ".");
    writer.F32(name + ".rope.freq_base", static_cast<float>(file.rope_base));
    if (file.rope_linear > 0) {
        writer.String(name + ".rope.scaling.type", "linear");
        writer.F32(name + ".rope.scaling.factor", static_cast<float>(file.rope_linear));
    }
    for (const auto& [key, value] : file.numbers) {
        const bool counts = key.ends_with("_window") || key.ends_with("_length") ||
                            key.ends_with("_layers") || key.ends_with("_input") ||
                            key.ends_with("_k") || key.ends_with("_func") || key.ends_with("_size");
        if (counts) {
            u32(key.c_str(), static_cast<int64_t>(value));
        } else {
            writer.F32(name + "." + key, static_cast<float>(value));
        }
    }
    for (const auto& [key, value] : file.strings) writer.String(name + "." + key, value);
    for (const auto& [key, value] : file.bools) writer.Bool(name + "." + key, value);
    WriteBools(writer, name + ".attention.sliding_window_pattern", file.windowed);
    WriteBools(writer, name + ".attention.indexer.types", h.indexer.own);
    if (!file.chat_template.empty()) {
        writer.String("tokenizer.chat_template", file.chat_template);
    }
    if (!file.tool_template.empty()) {
        writer.String("tokenizer.chat_template.tool_use", file.tool_template);
    }
    if (file.tokenizer) {
        model_files::WriteTokenizer(*file.tokenizer, writer);
    } else {
        WriteVocabulary(writer, file.vocabulary > 0 ? file.vocabulary : h.vocab);
    }
    const TinySource source(h, std::nullopt, file.form);
    for (const model_files::TensorInfo& info : source.tensors()) {
        const TinyTensor& tensor = source.data().at(info.name);
        const DType dtype = FittingType(file.dtype, tensor.cols, tensor.rows);
        const std::vector<int64_t> dims(info.dims.begin(), info.dims.begin() + info.dim_count);
        writer.Tensor(info.name, file.dequantized ? DType::kF32 : dtype, dims,
                      TensorBytes(tensor, dtype, file.dequantized));
    }
    for (const auto& [tensor, values] : file.vectors) {
        const auto bytes = std::as_bytes(std::span(values));
        const int64_t dims[] = {static_cast<int64_t>(values.size())};
        if (!values.empty()) {
            writer.Tensor(tensor, DType::kF32, dims, {bytes.begin(), bytes.end()});
        }
    }
    const Status status = WriteFile(path, writer.File());
    WEFT_CHECK(status.ok());
}

}  // namespace weft::support
