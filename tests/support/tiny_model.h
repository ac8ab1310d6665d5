// A tiny llama, qwen2 or qwen3 as Programs, built by hand for any tensor and pipeline layout: an
// independent second builder beside model/, for the tests of the Program's walks. Its weights come
// from a formula that tools/make_gradient_golden.py computes, too.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace weft::support {

struct TinyModel {
    int64_t layers = 2, vocabulary = 29, hidden = 16, heads = 6, kv_heads = 3, head_dim = 4;
    int64_t feed_forward = 24;
    float rope_base = 10000, eps = 1e-5f;
    bool neighbours = false, tied = false, bias = false, qk_norm = false;
    int64_t group() const { return heads / kv_heads; }
};

// Where each tensor rank's share begins; one more entry ends the last. stages: layers of each.
struct TinyLayout {
    std::vector<int64_t> head_begin, feed_begin, vocabulary_begin, stage_begin;
    size_t tensor_ranks() const { return head_begin.size() - 1; }
    size_t stages() const { return stage_begin.size() - 1; }
    bool tensor() const { return tensor_ranks() > 1; }
};

// `parts` nearly equal shares of `count`.
inline std::vector<int64_t> EvenShares(int64_t count, int64_t parts) {
    std::vector<int64_t> begins;
    for (int64_t i = 0; i <= parts; ++i) begins.push_back(count * i / parts);
    return begins;
}

inline TinyLayout EvenLayout(const TinyModel& m, int64_t tensor_ranks, int64_t stages = 1) {
    return {EvenShares(m.heads, tensor_ranks), EvenShares(m.feed_forward, tensor_ranks),
            EvenShares(m.vocabulary, tensor_ranks), EvenShares(m.layers, stages)};
}

// ---- Weights ------------------------------------------------------------------------------------

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

struct TinyTensor {
    int64_t rows = 0, cols = 0;
    std::vector<double> data;
};

// A matrix is uniform with variance 1 / cols, a norm's weight 1 +- 1/4, a bias +- 1/4.
inline TinyTensor MakeTensor(const std::string& name, int64_t rows, int64_t cols) {
    TinyTensor tensor{rows, cols, std::vector<double>(static_cast<size_t>(rows * cols))};
    const bool norm = name.find("norm") != std::string::npos, matrix = cols > 1;
    const float scale =
        matrix ? static_cast<float>(std::sqrt(3.0 / static_cast<double>(cols))) : 0.25f;
    for (size_t i = 0; i < tensor.data.size(); ++i) {
        const double u = Formula(name, static_cast<uint32_t>(i));
        tensor.data[i] = static_cast<float>((norm ? 1.0 : 0.0) + u * scale);
    }
    return tensor;
}

// All tensors of the model by their GGUF name. Vectors have one column.
inline std::map<std::string, TinyTensor> TinyTensors(const TinyModel& m) {
    std::map<std::string, TinyTensor> tensors;
    const auto add = [&](const std::string& name, int64_t rows, int64_t cols = 1) {
        tensors[name] = MakeTensor(name, rows, cols);
    };
    add("token_embd.weight", m.vocabulary, m.hidden);
    if (!m.tied) add("output.weight", m.vocabulary, m.hidden);
    add("output_norm.weight", m.hidden);
    for (int64_t layer = 0; layer < m.layers; ++layer) {
        const std::string p = "blk." + std::to_string(layer) + ".";
        add(p + "attn_norm.weight", m.hidden);
        add(p + "ffn_norm.weight", m.hidden);
        add(p + "attn_q.weight", m.heads * m.head_dim, m.hidden);
        add(p + "attn_k.weight", m.kv_heads * m.head_dim, m.hidden);
        add(p + "attn_v.weight", m.kv_heads * m.head_dim, m.hidden);
        add(p + "attn_output.weight", m.hidden, m.heads * m.head_dim);
        add(p + "ffn_gate.weight", m.feed_forward, m.hidden);
        add(p + "ffn_up.weight", m.feed_forward, m.hidden);
        add(p + "ffn_down.weight", m.hidden, m.feed_forward);
        if (m.bias) {
            add(p + "attn_q.bias", m.heads * m.head_dim);
            add(p + "attn_k.bias", m.kv_heads * m.head_dim);
            add(p + "attn_v.bias", m.kv_heads * m.head_dim);
        }
        if (m.qk_norm) {
            add(p + "attn_q_norm.weight", m.head_dim);
            add(p + "attn_k_norm.weight", m.head_dim);
        }
    }
    return tensors;
}

// ---- Programs -----------------------------------------------------------------------------------

// One rank's Program. Inputs are named "tokens", "positions", "output_rows"; the output "logits".
class TinyBuilder {
  public:
    TinyBuilder(const TinyModel& model, const TinyLayout& layout, size_t rank)
        : m_(model), layout_(layout), rank_(rank % layout.tensor_ranks()), world_rank_(rank) {}

    program::Program Build() {
        const size_t stage = world_rank_ / layout_.tensor_ranks();
        const bool last = stage + 1 == layout_.stages();
        const auto peer = static_cast<int>(layout_.tensor_ranks());
        positions_ = Input("positions", program::kTokens);
        program::ValueId x = program::kNoValue;
        if (stage == 0) {
            x = Embed();
        } else {
            x = p_.Emit(program::Recv{static_cast<int>(world_rank_) - peer}, {}, "received",
                        Hidden());
        }
        for (int64_t l = layout_.stage_begin[stage]; l < layout_.stage_begin[stage + 1]; ++l) {
            x = Layer(l, x);
        }
        if (last) {
            Logits(x);
        } else {
            p_.ops.push_back({program::Send{static_cast<int>(world_rank_) + peer}, {x}, {}});
        }
        return std::move(p_);
    }

  private:
    program::Shape Hidden() const { return {program::kTokens, m_.hidden}; }

    program::ValueId Input(const std::string& name, int64_t dim) {
        program::Value value;
        value.name = name;
        value.dtype = DType::kI32;
        value.shape = {dim};
        value.storage = program::Storage::kInput;
        return p_.AddValue(value);
    }

    program::ValueId Weight(const std::string& name, program::Shape shape, int64_t row_begin = 0,
                            int64_t col_begin = 0) {
        const program::ValueId known = p_.Find(name);
        if (known != program::kNoValue) return known;
        program::Value value;
        value.name = name;
        value.shape = shape;
        value.storage = program::Storage::kWeight;
        value.slice = {name, row_begin, col_begin};
        return p_.AddValue(value);
    }

    program::Cut Rows() const {
        return layout_.tensor() ? program::Cut::kRows : program::Cut::kNone;
    }

    program::ValueId Sum(program::ValueId x, const std::string& name) {
        if (!layout_.tensor()) return x;
        return p_.Emit(program::AllReduce{}, {x}, name + ".all", Hidden());
    }

    program::ValueId Table(const std::string& name) {
        const int64_t begin = layout_.vocabulary_begin[rank_];
        return Weight(name, {layout_.vocabulary_begin[rank_ + 1] - begin, m_.hidden}, begin);
    }

    program::ValueId Embed() {
        const program::ValueId tokens = Input("tokens", program::kTokens);
        const int64_t begin = layout_.vocabulary_begin[rank_];
        return Sum(p_.Emit(program::Embedding{begin}, {tokens, Table("token_embd.weight")}, "embed",
                           Hidden()),
                   "embed");
    }

    program::ValueId Norm(program::ValueId x, const std::string& name, const std::string& output,
                          int64_t group) {
        return p_.Emit(program::RmsNorm{m_.eps, group}, {x, Weight(name, {group})}, output,
                       p_.value(x).shape);
    }

    // Rows [begin, begin + count) of a weight; shared_rows as in MatMul.
    program::ValueId Project(program::ValueId x, const std::string& tensor, const std::string& name,
                             int64_t begin, int64_t count, int64_t shared_rows, bool bias) {
        std::vector<program::ValueId> inputs = {
            x, Weight(tensor + ".weight", {count, m_.hidden}, begin)};
        if (bias) inputs.push_back(Weight(tensor + ".bias", {count}, begin));
        return p_.Emit(program::MatMul{Rows(), shared_rows}, inputs, name,
                       {p_.value(x).shape[0], count});
    }

    // Where several ranks hold the same KV head: all rows of K and V; else 0.
    int64_t SharedKvRows() const {
        for (size_t r = 1; r < layout_.tensor_ranks(); ++r) {
            if (layout_.head_begin[r] % m_.group() != 0) return m_.kv_heads * m_.head_dim;
        }
        return 0;
    }

    program::ValueId Rotate(program::ValueId x, const std::string& name) {
        program::Rope rope;
        rope.head_dim = rope.rotary_dim = m_.head_dim;
        rope.neighbours = m_.neighbours;
        for (int64_t i = 0; i < m_.head_dim / 2; ++i) {
            rope.inverse_frequency.push_back(
                std::pow(m_.rope_base, -2.0f * static_cast<float>(i) /
                                           static_cast<float>(m_.head_dim)));
        }
        return p_.Emit(rope, {x, positions_}, name, p_.value(x).shape);
    }

    program::ValueId Attend(const std::string& prefix, program::ValueId h) {
        const int64_t first = layout_.head_begin[rank_], end = layout_.head_begin[rank_ + 1];
        const int64_t kv_first = first / m_.group(), kv_end = (end - 1) / m_.group() + 1;
        const int64_t hd = m_.head_dim, kv_rows = (kv_end - kv_first) * hd;
        const int64_t shared = SharedKvRows();
        auto q = Project(h, prefix + "attn_q", prefix + "q", first * hd, (end - first) * hd, 0,
                         m_.bias);
        auto k = Project(h, prefix + "attn_k", prefix + "k", kv_first * hd, kv_rows, shared,
                         m_.bias);
        auto v = Project(h, prefix + "attn_v", prefix + "v", kv_first * hd, kv_rows, shared,
                         m_.bias);
        if (m_.qk_norm) {
            q = Norm(q, prefix + "attn_q_norm.weight", prefix + "q.norm", hd);
            k = Norm(k, prefix + "attn_k_norm.weight", prefix + "k.norm", hd);
        }
        q = Rotate(q, prefix + "q.rope");
        k = Rotate(k, prefix + "k.rope");
        const program::Attention attention{end - first, kv_end - kv_first, hd, first, kv_first,
                                           m_.group(),
                                           1.0f / std::sqrt(static_cast<float>(hd))};
        const auto out =
            p_.Emit(attention, {q, k, v}, prefix + "attn", {program::kTokens, (end - first) * hd});
        return Back(out, prefix + "attn_output.weight", prefix + "attn.out", first * hd);
    }

    // x times this rank's columns of the weight, summed over ranks.
    program::ValueId Back(program::ValueId x, const std::string& tensor, const std::string& name,
                          int64_t begin) {
        const auto cut = layout_.tensor() ? program::Cut::kColumns : program::Cut::kNone;
        const auto weight = Weight(tensor, {m_.hidden, p_.value(x).shape[1]}, 0, begin);
        return Sum(p_.Emit(program::MatMul{cut}, {x, weight}, name, Hidden()), name);
    }

    program::ValueId FeedForward(const std::string& prefix, program::ValueId h) {
        const int64_t begin = layout_.feed_begin[rank_];
        const int64_t count = layout_.feed_begin[rank_ + 1] - begin;
        const auto gate = Project(h, prefix + "ffn_gate", prefix + "gate", begin, count, 0, false);
        const auto up = Project(h, prefix + "ffn_up", prefix + "up", begin, count, 0, false);
        const auto out =
            p_.Emit(program::SwiGlu{}, {gate, up}, prefix + "swi_glu", {program::kTokens, count});
        return Back(out, prefix + "ffn_down.weight", prefix + "down", begin);
    }

    program::ValueId Layer(int64_t layer, program::ValueId x) {
        const std::string prefix = "blk." + std::to_string(layer) + ".";
        const auto h = Norm(x, prefix + "attn_norm.weight", prefix + "attn_norm", m_.hidden);
        const auto mid = p_.Emit(program::Add{}, {x, Attend(prefix, h)}, prefix + "mid", Hidden());
        const auto g = Norm(mid, prefix + "ffn_norm.weight", prefix + "ffn_norm", m_.hidden);
        return p_.Emit(program::Add{}, {mid, FeedForward(prefix, g)}, prefix + "out", Hidden());
    }

    void Logits(program::ValueId x) {
        const auto rows = Input("output_rows", program::kOutputs);
        const auto picked = p_.Emit(program::SelectRows{}, {x, rows}, "picked",
                                    {program::kOutputs, m_.hidden});
        const auto h = Norm(picked, "output_norm.weight", "output_norm", m_.hidden);
        const auto table = Table(m_.tied ? "token_embd.weight" : "output.weight");
        const int64_t mine = p_.value(table).shape[0];
        const auto logits = p_.Emit(program::MatMul{Rows()}, {h, table},
                                    layout_.tensor() ? "logits.mine" : "logits",
                                    {program::kOutputs, mine});
        if (!layout_.tensor()) return;
        program::AllGather gather;
        for (size_t r = 0; r < layout_.tensor_ranks(); ++r) {
            gather.parts.push_back(layout_.vocabulary_begin[r + 1] - layout_.vocabulary_begin[r]);
        }
        gather.begin = layout_.vocabulary_begin[rank_];
        p_.Emit(gather, {logits}, "logits", {program::kOutputs, m_.vocabulary});
    }

    const TinyModel m_;
    const TinyLayout layout_;
    const size_t rank_;
    const size_t world_rank_;
    program::Program p_;
    program::ValueId positions_ = program::kNoValue;
};

inline std::vector<program::Program> BuildTiny(const TinyModel& model, const TinyLayout& layout) {
    std::vector<program::Program> programs;
    for (size_t rank = 0; rank < layout.tensor_ranks() * layout.stages(); ++rank) {
        programs.push_back(TinyBuilder(model, layout, rank).Build());
    }
    return programs;
}

}  // namespace weft::support
