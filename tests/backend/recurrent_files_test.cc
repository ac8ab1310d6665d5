// Qwen3-Next files of older converters: ssm_in combines queries, keys, values and gates by key
// head.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/loaded_rank.h"
#include "support/tiny_model.h"

namespace weft::backend {
namespace {

using model_files::TensorInfo;
using support::LoadedRank;

// Presents a model with attn_qkv and attn_gate in the older form.
class OlderFile final : public model_files::ModelSource {
  public:
    OlderFile(const model::Hyper& hyper, const support::TinySource& inner)
        : r_(hyper.recurrent), inner_(inner) {
        for (TensorInfo info : inner.tensors()) {
            if (info.name.ends_with("attn_gate.weight")) continue;
            if (const size_t at = info.name.find("attn_qkv"); at != info.name.npos) {
                info.name.replace(at, std::string_view("attn_qkv").size(), "ssm_in");
                info.rows = info.dims[1] = r_.key_heads * Each();
                info.bytes = static_cast<uint64_t>(info.rows * info.cols) * sizeof(float);
            }
            infos_.push_back(info);
        }
    }
    const std::string& name() const override { return inner_.name(); }
    const model_files::Metadata& meta() const override { return inner_.meta(); }
    const std::vector<TensorInfo>& tensors() const override { return infos_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        for (const TensorInfo& info : infos_) {
            if (info.name == tensor) return &info;
        }
        return nullptr;
    }
    Status ReadRows(const TensorInfo& info, int64_t row_begin, int64_t row_count, int64_t col_begin,
                    int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override {
        const size_t at = info.name.find("ssm_in");
        if (at == info.name.npos) {
            return inner_.ReadRows(info, row_begin, row_count, col_begin, col_count, out,
                                   bytes_read);
        }
        const std::string block = info.name.substr(0, at);
        const size_t row_bytes = static_cast<size_t>(col_count) * sizeof(float);
        for (int64_t row = 0; row < row_count; ++row) {
            const auto [tensor, from] = HomeOf(row_begin + row);
            const TensorInfo& home = *inner_.FindTensor(block + tensor);
            WEFT_TRY(inner_.ReadRows(home, from, 1, col_begin, col_count,
                                     out.subspan(static_cast<size_t>(row) * row_bytes, row_bytes),
                                     bytes_read));
        }
        return {};
    }
    Result<std::string> Fingerprint() const override { return inner_.Fingerprint(); }

  private:
    int64_t Own() const { return r_.group() * r_.value_dim; }
    int64_t Each() const { return 2 * (r_.key_dim + Own()); }
    std::pair<const char*, int64_t> HomeOf(int64_t row) const {
        const int64_t head = row / Each(), keys = r_.key_heads * r_.key_dim;
        int64_t at = row % Each();
        if (at < r_.key_dim) return {"attn_qkv.weight", head * r_.key_dim + at};
        at -= r_.key_dim;
        if (at < r_.key_dim) return {"attn_qkv.weight", keys + head * r_.key_dim + at};
        at -= r_.key_dim;
        if (at < Own()) return {"attn_qkv.weight", 2 * keys + head * Own() + at};
        return {"attn_gate.weight", head * Own() + at - Own()};
    }

    const model::Recurrent r_;
    const support::TinySource& inner_;
    std::vector<TensorInfo> infos_;
};

TEST(RecurrentFiles, OlderOnesGiveTheSameBits) {
    const model::Hyper hyper = support::TinyRecurrentHyper(false);
    const support::TinySource source(hyper);
    const OlderFile older(hyper, source);
    std::vector<int32_t> tokens(20);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 31 + 7) % 64);
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    const auto logits = [&](const model_files::ModelSource& file) {
        const program::Program program = support::Build(hyper, file, {}, options).at(0);
        return LoadedRank(program, file, {}).Logits(tokens, 7);
    };
    EXPECT_EQ(logits(older), logits(source));
    // A rank reads only its own key heads' rows.
    model::Layout layout;
    layout.tp = 2;
    const auto ranks = support::Build(hyper, older, layout, options);
    for (const program::Program& program : ranks) {
        const program::ValueId in = program.Find("blk.0.ssm_in.weight");
        ASSERT_NE(in, program::kNoValue);
        EXPECT_EQ(program.value(in).shape[0] * 2, older.FindTensor("blk.0.ssm_in.weight")->rows);
    }
}

}  // namespace
}  // namespace weft::backend
