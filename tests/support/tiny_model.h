// Models for the tests of programs: hyper-parameters and a source of tensors without a file.
// Tensors are float32, their values a formula that tools/make_gradient_golden.py computes, too.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace weft::support {

// ---- The formula --------------------------------------------------------------------------------

inline uint32_t Fnv1a(std::string_view text) {
    uint32_t hash = 2166136261u;
    for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
    return hash;
}

// Element i of the stream `name`: uniform in [-1, 1), exact in float.
inline double Formula(std::string_view name, uint32_t i) {
    uint32_t h = i * 2654435761u + Fnv1a(name);
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    return static_cast<double>((h ^ (h >> 16)) >> 8) / 8388608.0 - 1.0;
}

// A vector has one row, as in a file.
struct TinyTensor {
    int64_t rows = 0, cols = 0;
    std::vector<float> data;
};

// A matrix has variance 1 / cols, a norm's weight is 1 +- 1/4, a bias +- 1/4.
inline TinyTensor MakeTensor(const std::string& name, int64_t rows, int64_t cols) {
    TinyTensor tensor{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
    const bool norm = name.find("norm") != std::string::npos;
    const bool vector = norm || name.ends_with(".bias");
    const double scale = vector ? 0.25 : std::sqrt(3.0 / static_cast<double>(cols));
    for (size_t i = 0; i < tensor.data.size(); ++i) {
        const double u = Formula(name, static_cast<uint32_t>(i));
        tensor.data[i] = static_cast<float>((norm ? 1.0 : 0.0) + u * scale);
    }
    return tensor;
}

// ---- The source ---------------------------------------------------------------------------------

// Float32 tensors by the formula; given a dtype, only the table of tensors of that type, with
// nothing to read.
class TinySource final : public formats::ModelSource {
  public:
    explicit TinySource(const model::Hyper& h, std::optional<DType> dtype = std::nullopt)
        : dtype_(dtype), meta_(name_, {}) {
        Add("token_embd.weight", h.vocab, h.hidden);
        if (!h.tied) Add("output.weight", h.vocab, h.hidden);
        Add("output_norm.weight", 1, h.hidden);
        for (int64_t layer = 0; layer < h.layers; ++layer) {
            AddLayer(h, layer, "blk." + std::to_string(layer) + ".");
        }
    }

    const std::string& name() const override { return name_; }
    const formats::Metadata& meta() const override { return meta_; }
    const std::vector<formats::TensorInfo>& tensors() const override { return infos_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override {
        for (const formats::TensorInfo& info : infos_) {
            if (info.name == tensor) return &info;
        }
        return nullptr;
    }
    Status ReadRows(const formats::TensorInfo& info, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t*) const override {
        const TinyTensor& tensor = data_.at(info.name);
        const size_t row_bytes = static_cast<size_t>(col_count) * sizeof(float);
        for (int64_t row = 0; row < row_count; ++row) {
            std::memcpy(out.data() + static_cast<size_t>(row) * row_bytes,
                        tensor.data.data() + (row_begin + row) * tensor.cols + col_begin,
                        row_bytes);
        }
        return {};
    }
    Result<std::string> Fingerprint() const override { return name_; }

    const std::map<std::string, TinyTensor>& data() const { return data_; }
    std::map<std::string, TinyTensor>& data() { return data_; }

  private:
    void Add(const std::string& tensor, int64_t rows, int64_t cols) {
        const DType dtype = rows == 1 ? DType::kF32 : dtype_.value_or(DType::kF32);
        infos_.push_back({tensor,
                          dtype,
                          cols,
                          rows,
                          rows == 1 ? 1 : 2,
                          {cols, rows, 1, 1},
                          0,
                          0,
                          static_cast<uint64_t>(rows * RowBytes(dtype, cols))});
        if (!dtype_) data_[tensor] = MakeTensor(tensor, rows, cols);
    }

    void AddLayer(const model::Hyper& h, int64_t layer, const std::string& p) {
        const model::HeadShape heads = h.HeadsOf(layer);
        const int64_t q_rows = h.heads * heads.head_dim, kv_rows = heads.kv_heads * heads.head_dim;
        const std::string& name = h.architecture;
        const bool fused = name == "phi3", post = name.starts_with("gemma") || name == "olmo2";
        for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) {
            if (name != "olmo2") Add(p + norm, 1, h.hidden);
        }
        for (const char* norm : {"post_attention_norm.weight", "post_ffw_norm.weight"}) {
            if (post) Add(p + norm, 1, h.hidden);
        }
        if (fused) {
            Add(p + "attn_qkv.weight", q_rows + 2 * kv_rows, h.hidden);
        } else {
            Add(p + "attn_q.weight", q_rows, h.hidden);
            Add(p + "attn_k.weight", kv_rows, h.hidden);
            const bool k_is_v = name == "gemma4" && !h.IsWindowed(layer);
            if (!k_is_v) Add(p + "attn_v.weight", kv_rows, h.hidden);
            Add(p + "ffn_gate.weight", h.ffn, h.hidden);
        }
        Add(p + "attn_output.weight", h.hidden, q_rows);
        Add(p + "ffn_up.weight", (fused ? 2 : 1) * h.ffn, h.hidden);
        Add(p + "ffn_down.weight", h.hidden, h.ffn);
        if (h.architecture == "qwen2") {
            Add(p + "attn_q.bias", 1, q_rows);
            Add(p + "attn_k.bias", 1, kv_rows);
            Add(p + "attn_v.bias", 1, kv_rows);
        }
        if (name == "qwen3" || name == "gemma3" || name == "gemma4") {
            Add(p + "attn_q_norm.weight", 1, heads.head_dim);
            Add(p + "attn_k_norm.weight", 1, heads.head_dim);
        }
        if (name == "gemma4") Add(p + "layer_output_scale.weight", 1, 1);
        if (name == "olmo2") {
            Add(p + "attn_q_norm.weight", 1, q_rows);
            Add(p + "attn_k_norm.weight", 1, kv_rows);
        }
    }

    std::optional<DType> dtype_;
    std::string name_ = "tiny";
    formats::Metadata meta_;
    std::vector<formats::TensorInfo> infos_;
    std::map<std::string, TinyTensor> data_;
};

// ---- Hyper-parameters ---------------------------------------------------------------------------

inline void SetRope(model::Hyper& h, double base) {
    h.rotary_dim = h.head_dim;
    model::Rope rope;
    for (int64_t i = 0; i < h.rotary_dim / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(h.rotary_dim);
        rope.inverse_frequency.push_back(static_cast<float>(std::pow(base, exponent)));
    }
    h.ropes.all = h.ropes.far = h.ropes.windowed = rope;
}

// Two layers, 6 query heads over 3 KV heads, and columns that do not equal heads * head_dim.
inline model::Hyper TinyHyper(const std::string& architecture, bool tied) {
    model::Hyper h;
    h.architecture = architecture;
    h.layers = 2;
    h.hidden = 18;
    h.ffn = 24;
    h.heads = 6;
    h.kv_heads = 3;
    h.head_dim = 4;
    h.vocab = 50;
    h.context = 64;
    h.rms_eps = 1e-5f;
    h.tied = tied;
    SetRope(h, 100);
    return h;
}

inline model::Hyper SmolLm2Hyper() {
    model::Hyper h;
    h.architecture = "llama";
    h.layers = 30;
    h.hidden = 576;
    h.ffn = 1536;
    h.heads = 9;
    h.kv_heads = 3;
    h.head_dim = 64;
    h.vocab = 49152;
    h.context = 8192;
    h.tied = true;
    SetRope(h, 100000);
    return h;
}

// ---- Programs -----------------------------------------------------------------------------------

inline std::vector<program::Program> Build(const model::Hyper& hyper,
                                           const formats::ModelSource& source,
                                           const model::Layout& layout,
                                           const model::BuildOptions& options) {
    const auto plan = model::PlanShards(hyper, source, layout);
    std::vector<program::Program> programs;
    for (const model::Shard& shard : plan.value().shards) {
        programs.push_back(model::BuildProgram(hyper, shard, source, options).value());
    }
    return programs;
}

}  // namespace weft::support
