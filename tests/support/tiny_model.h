// Models for tests of Programs: hyper-parameters and a source of tensors without a file. Tensors
// are float32 with values by a formula that tools/make_gradient_golden.py also computes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
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

// The stream `name`: element i is uniform in [-1, 1), exact in float.
class Stream {
  public:
    explicit Stream(std::string_view name) : seed_(Fnv1a(name)) {}
    double operator[](size_t i) const {
        uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed_;
        h = (h ^ (h >> 15)) * 2246822519u;
        h = (h ^ (h >> 13)) * 3266489917u;
        return static_cast<double>((h ^ (h >> 16)) >> 8) / 8388608.0 - 1.0;
    }

  private:
    uint32_t seed_;
};

inline double Formula(std::string_view name, uint32_t i) {
    return Stream(name)[i];
}

// A vector has one row, as in a file.
struct TinyTensor {
    int64_t rows = 0, cols = 0;
    std::vector<float> data;
};

// A matrix has variance 1 / cols, a norm weight is 1 +- 1/4, a bias +- 1/4, a scale 8 +- 2, a decay
// -1 +- 3/4.
inline TinyTensor MakeTensor(const std::string& name, int64_t rows, int64_t cols) {
    TinyTensor tensor{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
    const bool norm = name.find("norm") != std::string::npos;
    const bool factor = name.ends_with(".scale");
    const bool vector = norm || name.ends_with(".bias"), decay = name.ends_with("ssm_a");
    const double mean = norm ? 1.0 : factor ? 8.0 : decay ? -1.0 : 0.0;
    const double scale = factor   ? 2.0
                         : decay  ? 0.75
                         : vector ? 0.25
                                  : std::sqrt(3.0 / static_cast<double>(cols));
    const Stream stream(name);
    float* values = tensor.data.data();  // (operators of vectors are calls at -O0)
    for (size_t i = 0, end = tensor.data.size(); i < end; ++i) {
        values[i] = static_cast<float>(mean + stream[i] * scale);
    }
    return tensor;
}

// ---- The source ---------------------------------------------------------------------------------

// Properties of a source's tensors that hyper-parameters do not give.
struct TinyForm {
    int64_t dense_layers = 0;  // leading layers without experts
    bool split_latent = true;  // attn_k_b and attn_v_b; else attn_kv_b
    bool plain_heads = false;  // heads without norms and biases, of glm4moe
    // Factor for the layers' contribution to the residual stream; 0: unchanged. If small, the next
    // token depends almost only on the last one, and the draft head is built to know this.
    float layer_scale = 0;
};

// Float32 tensors by the formula; with a dtype, only the tensor table in that type, without data.
class TinySource final : public model_files::ModelSource {
  public:
    explicit TinySource(const model::Hyper& h, std::optional<DType> dtype = std::nullopt,
                        const TinyForm& form = {})
        : form_(form), dtype_(dtype), meta_(name_, {}) {
        Add("token_embd.weight", h.vocab, h.hidden);
        if (!h.tied) Add("output.weight", h.vocab, h.hidden);
        const bool lfm = h.architecture.starts_with("lfm2");
        Add(lfm ? "token_embd_norm.weight" : "output_norm.weight", 1, h.hidden);
        for (int64_t layer = 0; layer < h.layers; ++layer) {
            AddLayer(h, layer, "blk." + std::to_string(layer) + ".");
        }
        if (h.draft_head) AddDraftHead(h, "blk." + std::to_string(h.layers) + ".");
        if (form_.layer_scale != 0 && !dtype_) ScaleLayers(h);
    }

    const std::string& name() const override { return name_; }
    const model_files::Metadata& meta() const override { return meta_; }
    const std::vector<model_files::TensorInfo>& tensors() const override { return infos_; }
    const model_files::TensorInfo* FindTensor(std::string_view tensor) const override {
        for (const model_files::TensorInfo& info : infos_) {
            if (info.name == tensor) return &info;
        }
        return nullptr;
    }
    Status ReadRows(const model_files::TensorInfo& info, int64_t row_begin, int64_t row_count,
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
    // matrices: number of matrices, stacked by rows.
    void Add(const std::string& tensor, int64_t rows, int64_t cols, int64_t matrices = 1) {
        const bool vector = rows == 1 || cols == 1;
        const DType dtype = vector ? DType::kF32 : dtype_.value_or(DType::kF32);
        const int dims = matrices > 1 ? 3 : rows == 1 ? 1 : 2;
        const int64_t each = rows;
        rows *= matrices;
        infos_.push_back({tensor,
                          dtype,
                          cols,
                          rows,
                          dims,
                          {cols, each, matrices, 1},
                          0,
                          0,
                          static_cast<uint64_t>(rows * RowBytes(dtype, cols))});
        if (!dtype_) data_[tensor] = MakeTensor(tensor, rows, cols);
    }

    void ScaleLayers(const model::Hyper& h) {
        for (auto& [name, tensor] : data_) {
            const bool adds = name.find("attn_output") != name.npos ||
                              name.find("ffn_down") != name.npos ||
                              name.find("ssm_out") != name.npos;
            for (float& value : tensor.data) value *= adds ? form_.layer_scale : 1;
        }
        if (!h.draft_head) return;
        const std::string p = "blk." + std::to_string(h.layers) + ".nextn.";
        TinyTensor& both = data_.at(p + "eh_proj.weight");
        for (int64_t row = 0; row < h.hidden; ++row) {
            for (int64_t col = 0; col < both.cols; ++col) {
                both.data[static_cast<size_t>(row * both.cols + col)] = col == row ? 1.0f : 0.0f;
            }
        }
        for (float& value : data_.at(p + "enorm.weight").data) value = 1;
        data_.at(p + "shared_head_norm.weight") = data_.at("output_norm.weight");
    }

    void AddDraftHead(const model::Hyper& h, const std::string& p) {
        AddLayer(h, h.layers, p);
        Add(p + "nextn.eh_proj.weight", h.hidden, 2 * h.hidden);
        for (const char* norm : {"enorm", "hnorm", "shared_head_norm"}) {
            Add(p + "nextn." + norm + ".weight", 1, h.hidden);
        }
    }

    void AddLayer(const model::Hyper& h, int64_t layer, const std::string& p) {
        const model::HeadShape heads = h.HeadsOf(layer);
        const int64_t q_rows = h.heads * heads.head_dim, kv_rows = heads.kv_heads * heads.head_dim;
        const std::string& name = h.architecture;
        const bool fused = name == "phi3", post = name.starts_with("gemma") || name == "olmo2";
        const bool recurrent = h.has_state() && layer < h.layers && (layer + 1) % 4 != 0;
        const bool delta_net = IsDeltaNet(h);
        const bool other_norm =
            name == "gpt-oss" || name == "glm4moe" || name == "seed_oss" || delta_net;
        for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) {
            const bool other = other_norm && std::string(norm).starts_with("ffn");
            if (name != "olmo2")
                Add(p + (other ? "post_attention_norm.weight" : norm), 1, h.hidden);
        }
        for (const char* norm : {"post_attention_norm.weight", "post_ffw_norm.weight"}) {
            if (post) Add(p + norm, 1, h.hidden);
        }
        if (h.indexer.top > 0 && h.indexer.block == 0 && h.indexer.IsOwn(layer)) AddIndexer(h, p);
        if (recurrent) {
            AddRecurrent(h.recurrent, h.hidden, p);
        } else if (h.latent.rank > 0) {
            AddLatent(h, p);
        } else if (fused) {
            Add(p + "attn_qkv.weight", q_rows + 2 * kv_rows, h.hidden);
        } else {
            Add(p + "attn_q.weight", (delta_net ? 2 : 1) * q_rows, h.hidden);
            Add(p + "attn_k.weight", kv_rows, h.hidden);
            const bool k_is_v = name == "gemma4" && !h.IsWindowed(layer);
            if (!k_is_v) Add(p + "attn_v.weight", kv_rows, h.hidden);
        }
        if (!recurrent) {
            Add(p + "attn_output.weight", h.hidden,
                h.latent.rank > 0 ? h.heads * h.value_dim() : q_rows);
        }
        const bool experts = h.moe.experts > 0 && layer >= form_.dense_layers;
        const bool indexes = h.indexer.own.empty() ? experts : h.indexer.IsOwn(layer);
        if (indexes && name == "minimax-m3") AddBlockIndexer(h, p);
        if (experts) AddExperts(h, p);
        if (!experts || name == "gemma4") {
            if (!fused) Add(p + "ffn_gate.weight", h.ffn, h.hidden);
            Add(p + "ffn_up.weight", (fused ? 2 : 1) * h.ffn, h.hidden);
            Add(p + "ffn_down.weight", h.hidden, h.ffn);
        }
        const bool biased = other_norm && !form_.plain_heads && !delta_net;
        if (name.starts_with("qwen2") || biased) {
            Add(p + "attn_q.bias", 1, q_rows);
            Add(p + "attn_k.bias", 1, kv_rows);
            Add(p + "attn_v.bias", 1, kv_rows);
        }
        const bool glm = name == "glm4moe" && !form_.plain_heads;
        const bool normed = name.starts_with("qwen3") || name.starts_with("lfm2");
        if ((normed && !recurrent) || glm || name == "gemma3" || name == "gemma4" ||
            name == "hy_v3" || name == "dots1" || name == "minimax-m3") {
            Add(p + "attn_q_norm.weight", 1, heads.head_dim);
            Add(p + "attn_k_norm.weight", 1, heads.head_dim);
        }
        if (name == "gemma4") Add(p + "layer_output_scale.weight", 1, 1);
        if (name == "gpt-oss") {
            Add(p + "attn_output.bias", 1, h.hidden);
            Add(p + "attn_sinks.weight", 1, h.heads);
        }
        if (name == "olmo2" || name == "minimax-m2") {
            Add(p + "attn_q_norm.weight", 1, q_rows);
            Add(p + "attn_k_norm.weight", 1, kv_rows);
        }
    }

    static bool IsDeltaNet(const model::Hyper& h) {
        return h.has_state() && h.recurrent.kind == model::Recurrent::Kind::kDeltaNet;
    }

    void AddRecurrent(const model::Recurrent& r, int64_t hidden, const std::string& p) {
        const int64_t values = r.heads * r.value_dim;
        if (r.kind == model::Recurrent::Kind::kShortConv) {
            Add(p + "shortconv.in_proj.weight", 3 * hidden, hidden);
            Add(p + "shortconv.conv.weight", hidden, r.taps);
            Add(p + "shortconv.out_proj.weight", hidden, hidden);
            return;
        }
        if (r.kind == model::Recurrent::Kind::kKimiDelta) return AddKimiDelta(r, hidden, p);
        const int64_t channels = 2 * r.key_heads * r.key_dim + values;
        Add(p + "attn_qkv.weight", channels, hidden);
        Add(p + "attn_gate.weight", values, hidden);
        Add(p + "ssm_conv1d.weight", channels, r.taps);
        Add(p + "ssm_a", 1, r.heads);
        Add(p + "ssm_dt.bias", 1, r.heads);
        Add(p + "ssm_norm.weight", 1, r.value_dim);
        Add(p + "ssm_out.weight", hidden, values);
        if (r.cycles) {
            Add(p + "ssm_alpha.weight", r.heads, hidden);
            Add(p + "ssm_beta.weight", r.heads, hidden);
        } else {
            Add(p + "ssm_ba.weight", 2 * r.heads, hidden);
        }
    }

    void AddKimiDelta(const model::Recurrent& r, int64_t hidden, const std::string& p) {
        const int64_t columns = r.heads * r.key_dim;
        for (const char* each : {"q", "k", "v"}) {
            Add(p + "attn_" + each + ".weight", columns, hidden);
            Add(p + "ssm_conv1d_" + each + ".weight", 1, r.taps, columns);
        }
        const bool whole = r.floor != 0;
        for (const char* each : {"f", "g"}) {
            Add(p + "ssm_" + each + "_a.weight", whole ? columns : r.key_dim, hidden);
            if (!whole) Add(p + "ssm_" + each + "_b.weight", columns, r.key_dim);
        }
        Add(p + "ssm_beta.weight", r.heads, hidden);
        Add(p + "ssm_a", r.heads, 1);
        if (whole) {
            for (float& rate : data_[p + "ssm_a"].data) rate = -rate;
        }
        Add(p + "ssm_dt.bias", 1, columns);
        Add(p + "ssm_norm.weight", 1, r.value_dim);
        Add(p + "attn_output.weight", hidden, columns);
    }

    // attn_k_b and attn_v_b, or (older files) both in attn_kv_b.
    void AddLatent(const model::Hyper& h, const std::string& p) {
        const model::Latent& m = h.latent;
        const int64_t q_rows = h.heads * (m.nope + m.rope);
        if (m.q_rank > 0) {
            Add(p + "attn_q_a.weight", m.q_rank, h.hidden);
            Add(p + "attn_q_a_norm.weight", 1, m.q_rank);
            Add(p + "attn_q_b.weight", q_rows, m.q_rank);
        } else {
            Add(p + "attn_q.weight", q_rows, h.hidden);
        }
        Add(p + "attn_kv_a_mqa.weight", m.rank + m.rope, h.hidden);
        Add(p + "attn_kv_a_norm.weight", 1, m.rank);
        if (form_.split_latent) {
            Add(p + "attn_k_b.weight", m.rank, m.nope, h.heads);
            Add(p + "attn_v_b.weight", m.value, m.rank, h.heads);
        } else {
            Add(p + "attn_kv_b.weight", h.heads * (m.nope + m.value), m.rank);
        }
        if (h.architecture == "bailingmoe3") Add(p + "attn_gate.weight", h.heads, h.hidden);
    }

    void AddIndexer(const model::Hyper& h, const std::string& p) {
        const model::Indexer& m = h.indexer;
        Add(p + "indexer.attn_q_b.weight", m.heads * m.dim, h.latent.q_rank);
        Add(p + "indexer.attn_k.weight", m.dim, h.hidden);
        Add(p + "indexer.proj.weight", m.heads, h.hidden);
        Add(p + "indexer.k_norm.weight", 1, m.dim);
        Add(p + "indexer.k_norm.bias", 1, m.dim);
    }

    void AddBlockIndexer(const model::Hyper& h, const std::string& p) {
        const model::Indexer& m = h.indexer;
        Add(p + "indexer.q_proj.weight", m.heads * m.dim, h.hidden);
        Add(p + "indexer.k_proj.weight", m.dim, h.hidden);
        Add(p + "indexer.q_norm.weight", 1, m.dim);
        Add(p + "indexer.k_norm.weight", 1, m.dim);
    }

    void AddExperts(const model::Hyper& h, const std::string& p) {
        const model::Moe& moe = h.moe;
        Add(p + "ffn_gate_inp.weight", moe.experts, h.hidden);
        if (moe.route.score == program::GateScore::kSigmoid) {
            Add(p + (h.architecture == "hy_v3" ? "exp_probs_b" : "exp_probs_b.bias"), 1,
                moe.experts);
        }
        if (h.architecture == "gemma4") {
            Add(p + "ffn_gate_up_exps.weight", 2 * moe.ffn, h.hidden, moe.experts);
            Add(p + "ffn_gate_inp.scale", 1, h.hidden);
            Add(p + "ffn_down_exps.scale", 1, moe.experts);
            for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"}) {
                Add(p + norm + ".weight", 1, h.hidden);
            }
        } else {
            Add(p + "ffn_gate_exps.weight", moe.ffn, h.hidden, moe.experts);
            Add(p + "ffn_up_exps.weight", moe.ffn, h.hidden, moe.experts);
        }
        Add(p + "ffn_down_exps.weight", h.hidden, moe.ffn, moe.experts);
        if (h.architecture == "gpt-oss") {
            Add(p + "ffn_gate_inp.bias", 1, moe.experts);
            Add(p + "ffn_gate_exps.bias", moe.experts, moe.ffn);
            Add(p + "ffn_up_exps.bias", moe.experts, moe.ffn);
            Add(p + "ffn_down_exps.bias", moe.experts, h.hidden);
        }
        if (moe.shared_ffn == 0) return;
        Add(p + "ffn_gate_shexp.weight", moe.shared_ffn, h.hidden);
        Add(p + "ffn_up_shexp.weight", moe.shared_ffn, h.hidden);
        Add(p + "ffn_down_shexp.weight", h.hidden, moe.shared_ffn);
        if (h.architecture == "qwen2moe" || IsDeltaNet(h)) {
            Add(p + "ffn_gate_inp_shexp.weight", 1, h.hidden);
        }
    }

    TinyForm form_;
    std::optional<DType> dtype_;
    std::string name_ = "tiny";
    model_files::Metadata meta_;
    std::vector<model_files::TensorInfo> infos_;
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

// Two layers, 6 query heads over 3 KV heads, and hidden != heads * head_dim.
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

// The same for Gemma 2 and 3: a window of 3 in the first layer; Gemma 2 also has a soft cap of
// scores.
inline model::Hyper TinyGemmaHyper(const std::string& architecture, bool tied) {
    model::Hyper h = TinyHyper(architecture, tied);
    h.activation = Activation::kGeluTanh;
    h.window = 3, h.windowed = {true, false};
    h.embedding_scale = std::sqrt(18.0f), h.attention_scale = 1.0f / 3;
    if (architecture == "gemma2") h.attention_cap = 0.7f;
    return h;
}

inline model::Hyper TinyGraniteHyper(bool tied) {
    model::Hyper h = TinyHyper("granite", tied);
    h.embedding_scale = 3, h.residual_scale = 0.4f;
    h.attention_scale = 0.2f, h.logit_scale = 0.25f;
    return h;
}

// TinyHyper with five experts, two per token, for mixtral ("llama"), qwen3moe and qwen2moe (with a
// gated shared expert).
inline model::Hyper TinyExpertHyper(const std::string& architecture) {
    model::Hyper h = TinyHyper(architecture, false);
    h.moe.experts = 5;
    h.moe.used = 2;
    h.moe.ffn = 10;
    h.moe.shared_ffn = architecture == "qwen2moe" ? 14 : 0;
    h.moe.route.renormalise = architecture != "qwen2moe";
    return h;
}

// GPU attention kernels need a head_dim that is a multiple of 8.
inline model::Hyper WithHeadDim(model::Hyper h, int64_t head_dim = 8) {
    h.head_dim = head_dim;
    SetRope(h, 100);
    return h;
}

// Four layers of Qwen3-Next (or with `cycles`, Qwen 3.5), the last one with attention: eight value
// heads over four key heads.
inline void AddState(model::Hyper& h, bool cycles) {
    h.layers = 4;
    h.recurrent = {.heads = 8, .key_heads = 4, .key_dim = 24, .value_dim = 16, .taps = 4};
    h.recurrent.cycles = cycles;
    h.recurrent.whole_groups = !cycles;
}

// Four layers of LFM2, the last one with attention.
inline void AddShortConv(model::Hyper& h) {
    h.layers = 4;
    const int64_t unit = std::gcd(h.hidden, int64_t{64}), heads = h.hidden / unit;
    h.recurrent = {.heads = heads, .key_heads = heads, .value_dim = unit, .taps = 3};
    h.recurrent.kind = model::Recurrent::Kind::kShortConv;
}

// Four layers of Kimi Linear, the last one with latent attention.
inline void AddKimiDelta(model::Hyper& h) {
    h.layers = 4;
    h.latent = {.rank = 64, .q_rank = 0, .nope = 32, .rope = 16, .value = 24, .rotates = false};
    h.head_dim = 48;
    h.recurrent = {
        .heads = h.heads, .key_heads = h.heads, .key_dim = 16, .value_dim = 16, .taps = 4};
    h.recurrent.kind = model::Recurrent::Kind::kKimiDelta;
    if (h.architecture != "bailingmoe3") return;
    h.latent.rotates = true;
    h.recurrent.floor = -5;
}

inline model::Hyper TinyRecurrentHyper(bool cycles) {
    model::Hyper h = TinyHyper(cycles ? "qwen35" : "qwen3next", false);
    AddState(h, cycles);
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
                                           const model_files::ModelSource& source,
                                           const model::Layout& layout,
                                           const model::BuildOptions& options) {
    const auto plan = model::PlanShards(hyper, source, layout);
    std::vector<program::Program> programs;
    if (!plan.ok()) ADD_FAILURE() << plan.error().message;
    if (!plan.ok()) return programs;
    for (const model::Shard& shard : plan->shards) {
        auto program = model::BuildProgram(hyper, shard, source, options);
        if (!program.ok()) ADD_FAILURE() << program.error().message;
        if (program.ok()) programs.push_back(std::move(*program));
    }
    return programs;
}

}  // namespace weft::support
