// A DFlash head whose drafts are mostly right, for a model in which each token follows from the one
// before it (draft_head_file.h).
//
// The keys of the head are a position behind the queries, so that a row reads the row before it
// alone. A layer turns the embedding of a token, or a row that predicts it, into a row that
// predicts the next token; each layer thus drafts one more token.
#pragma once

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/hf_folder.h"
#include "support/tiny_gguf.h"

namespace weft::support {

// The vectors in the span of `rows` whose product with one row is 1, and with the others 0.
inline std::vector<std::vector<double>> DualRows(const std::vector<std::span<const float>>& rows) {
    const size_t count = rows.size();
    std::vector<std::vector<double>> products(count), dual;
    for (size_t i = 0; i < count; ++i) {
        dual.emplace_back(rows[i].begin(), rows[i].end());
        for (const auto& other : rows) {
            products[i].push_back(
                std::inner_product(rows[i].begin(), rows[i].end(), other.begin(), 0.0));
        }
    }
    const auto subtract = [](std::vector<double>& from, const std::vector<double>& row,
                             double factor) {
        for (size_t i = 0; i < row.size(); ++i) from[i] -= factor * row[i];
    };
    for (size_t pivot = 0; pivot < count; ++pivot) {
        const double own = 1 - 1 / products[pivot][pivot];
        subtract(dual[pivot], std::vector(dual[pivot]), own);
        subtract(products[pivot], std::vector(products[pivot]), own);
        for (size_t i = 0; i < count; ++i) {
            const double factor = products[i][pivot];
            if (i == pivot) continue;
            subtract(dual[i], dual[pivot], factor);
            subtract(products[i], products[pivot], factor);
        }
    }
    return dual;
}

// The ends of a model, as rows of `hidden` columns.
struct ModelEnds {
    int64_t hidden = 0;
    std::vector<float> embedding, output, last;  // last: the factors of the final norm
    int64_t vocab() const { return std::ssize(output) / hidden; }
    std::span<const float> Row(const std::vector<float>& table, int64_t token) const {
        return std::span(table).subspan(static_cast<size_t>(token * hidden),
                                        static_cast<size_t>(hidden));
    }
};

inline ModelEnds ReadEnds(const std::string& model, int64_t hidden) {
    const auto source = model_files::OpenModel(model).value();
    const auto read = [&](const char* name) {
        return source->ReadFloats(*source->FindTensor(name)).value();
    };
    return {hidden, read("token_embd.weight"), read("output.weight"), read("output_norm.weight")};
}

// The token that follows each.
inline std::vector<int64_t> NextTokens(const ModelEnds& ends) {
    std::vector<int64_t> next;
    for (int64_t token = 0; token < ends.vocab(); ++token) {
        const auto row = ends.Row(ends.embedding, token);
        std::vector<float> x(row.begin(), row.end());
        for (size_t i = 0; i < x.size(); ++i) x[i] *= ends.last[i];
        std::vector<float> logits;
        for (int64_t t = 0; t < ends.vocab(); ++t) {
            const auto output = ends.Row(ends.output, t);
            logits.push_back(std::inner_product(x.begin(), x.end(), output.begin(), 0.0f));
        }
        next.push_back(std::ranges::max_element(logits) - logits.begin());
    }
    return next;
}

// A square matrix for the tokens that an answer repeats in the end: from their embeddings, and from
// rows that predict them, to rows that predict what follows, and from the mask's embedding to 0.
inline std::vector<float> MapToNext(const ModelEnds& ends, int64_t mask) {
    const std::vector<int64_t> next = NextTokens(ends);
    std::set<int64_t> often;
    for (int64_t token = 0; token < ends.vocab(); ++token) {
        int64_t later = token;
        for (int step = 0; step < 10; ++step) later = next[static_cast<size_t>(later)];
        if (later != mask) often.insert(later);
    }
    // Rows of length 1 that predict their token.
    std::vector<float> predicts = ends.output;
    const auto columns = static_cast<size_t>(ends.hidden);
    for (size_t begin = 0; begin < predicts.size(); begin += columns) {
        const auto row = std::span(predicts).subspan(begin, columns);
        const float squares = std::inner_product(row.begin(), row.end(), row.begin(), 0.0f);
        for (float& value : row) value /= std::sqrt(squares);
    }
    std::vector<std::span<const float>> in = {ends.Row(ends.embedding, mask)}, out;
    for (const int64_t token : often) {
        for (const std::vector<float>* table : {&ends.embedding, &std::as_const(predicts)}) {
            in.push_back(ends.Row(*table, token));
            out.push_back(ends.Row(predicts, next[static_cast<size_t>(token)]));
        }
    }
    const std::vector<std::vector<double>> dual = DualRows(in);
    std::vector<float> map(columns * columns);
    for (size_t k = 0; k < out.size(); ++k) {
        for (size_t i = 0; i < map.size(); ++i) {
            map[i] += out[k][i / columns] * static_cast<float>(dual[k + 1][i % columns]);
        }
    }
    return map;
}

// Writes the folder of a DFlash head with blocks of five rows for the model in the file `model`.
// sure: as for HeadFile.
inline void WriteDflashHead(const std::string& folder, const std::string& model, bool sure) {
    constexpr int64_t kHidden = 144, kFfn = 96, kHeads = 9, kDim = kHidden / kHeads, kLayers = 4;
    constexpr int64_t kHalf = kDim / 2;
    constexpr float kSharp = 8;
    const ModelEnds ends = ReadEnds(model, kHidden);
    const int64_t mask = ends.vocab() - 1;
    std::map<std::string, SafeBytes> tensors;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                         const std::vector<float>& values) {
        tensors[name] = sure ? SafeBytes{"F32", std::move(shape), BytesOfValues(values)}
                             : HfGolden::Make(name, "F32", shape, 1);
    };
    const auto fill = [&](const std::string& name, std::vector<int64_t> shape, float value) {
        const int64_t count = shape[0] * (shape.size() > 1 ? shape[1] : 1);
        add(name, std::move(shape), std::vector<float>(static_cast<size_t>(count), value));
    };
    std::vector<float> same(kHidden * kHidden), behind;
    for (int64_t i = 0; i < kHidden; ++i) same[static_cast<size_t>(i * kHidden + i)] = 1;
    // A key of ones that is rotated by one position: the row after it sees it as its own.
    for (int64_t i = 0; i < kHidden; ++i) {
        const double angle = std::pow(1e4, -static_cast<double>(i % kHalf) / kHalf);
        behind.push_back(static_cast<float>(i % kDim < kHalf ? std::cos(angle) - std::sin(angle)
                                                             : std::cos(angle) + std::sin(angle)));
    }
    const std::vector<float> next = MapToNext(ends, mask);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        const std::string own = fmt::format("layers.{}.", layer), self = own + "self_attn.";
        fill(self + "q_proj.weight", {kHidden, kHidden}, 0);
        fill(self + "k_proj.weight", {kHidden, kHidden}, 0);
        add(self + "v_proj.weight", {kHidden, kHidden}, next);
        add(self + "o_proj.weight", {kHidden, kHidden}, same);
        fill(self + "q_proj.bias", {kHidden}, 1);
        add(self + "k_proj.bias", {kHidden}, behind);
        for (const char* norm : {"q_norm", "k_norm"}) {
            fill(fmt::format("{}{}.weight", self, norm), {kDim}, kSharp);
        }
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
            fill(fmt::format("{}{}.weight", own, norm), {kHidden}, 1);
        }
        fill(own + "mlp.gate_proj.weight", {kFfn, kHidden}, 0);
        fill(own + "mlp.up_proj.weight", {kFfn, kHidden}, 0);
        fill(own + "mlp.down_proj.weight", {kHidden, kFfn}, 0);
    }
    fill("fc.weight", {kHidden, 2 * kHidden}, 0);
    fill("hidden_norm.weight", {kHidden}, 1);
    fill("norm.weight", {kHidden}, 1);
    const nlohmann::json config = {
        {"architectures", {"DFlashDraftModel"}},
        {"model_type", "qwen3"},
        {"hidden_act", "silu"},
        {"hidden_size", kHidden},
        {"intermediate_size", kFfn},
        {"num_attention_heads", kHeads},
        {"num_key_value_heads", kHeads},
        {"head_dim", kDim},
        {"num_hidden_layers", kLayers},
        {"rms_norm_eps", 1e-5},
        {"attention_bias", true},
        {"vocab_size", ends.vocab()},
        {"block_size", 5},
        {"dflash_config", {{"mask_token_id", mask}, {"target_layer_ids", {1, 5}}}}};
    std::filesystem::create_directories(folder);
    WriteText(folder + "/config.json", config.dump());
    WriteTensors(folder, tensors);
}

}  // namespace weft::support
