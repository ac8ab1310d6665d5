// Tensor ranks whose columns begin or end within quantization blocks compute the bits of one rank:
// every quantized type, random widths, even and uneven shares, dense models and experts. Float
// models have widths that are not multiples of 32.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "coll/comm.h"
#include "hw/cpu.h"
#include "model_files/synthetic_weights.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/tiny_model.h"

namespace weft::support {
namespace {

using model_files::TensorInfo;

// The tensors of a TinySource in a block type, with random blocks.
class RandomBlocks final : public model_files::ModelSource {
  public:
    RandomBlocks(const model::Hyper& hyper, DType dtype) : table_(hyper, dtype) {}
    const std::string& name() const override { return table_.name(); }
    const model_files::Metadata& meta() const override { return table_.meta(); }
    const std::vector<TensorInfo>& tensors() const override { return table_.tensors(); }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        return table_.FindTensor(tensor);
    }
    Status ReadRows(const TensorInfo& info, int64_t row_begin, int64_t row_count, int64_t col_begin,
                    int64_t col_count, std::span<std::byte> out, uint64_t*) const override {
        CheckSlice(info, row_begin, row_count, col_begin, col_count, out.size());
        const auto row_bytes = static_cast<size_t>(RowBytes(info.dtype, col_count));
        for (int64_t row = 0; row < row_count; ++row) {
            model_files::RandomRow(info.dtype, Fnv1a(info.name), info.cols, row_begin + row,
                                   col_begin, col_count,
                                   out.subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
        }
        return {};
    }
    Result<std::string> Fingerprint() const override { return table_.name(); }

  private:
    TinySource table_;
};

struct CutCase {
    model::Hyper hyper;
    model::Layout layout;
};

class BlockCuts : public testing::TestWithParam<DType> {
  protected:
    static constexpr int64_t kTokens = 37;  // more than a tile of any kernel table

    int64_t Pick(std::initializer_list<int64_t> list) {
        return list.begin()[std::uniform_int_distribution<size_t>(0, list.size() - 1)(random_)];
    }

    // Widths of the residual stream, heads and MLPs that this type allows.
    CutCase RandomCase(bool experts) {
        const bool floats = Info(GetParam()).block_elements == 1;
        const bool k_type = Info(GetParam()).block_elements == 256;
        model::Hyper h = experts ? TinyExpertHyper("llama") : TinyHyper("llama", false);
        h.layers = 1;
        h.hidden = k_type ? 256 : 96;
        h.kv_heads = 4;
        h.heads = k_type ? Pick({4, 8}) : Pick({4, 12});
        h.head_dim = k_type ? Pick({64, 192}) : Pick({32, 64, 96});
        h.ffn = k_type ? Pick({256, 768, 1280}) : Pick({288, 480, 1056});
        h.moe.ffn = experts ? k_type ? Pick({256, 768}) : Pick({288, 480}) : 0;
        if (floats) {
            h.heads = 32;  // four parts of whole blocks of 32 columns, for BF16
            h.head_dim = Pick({20, 24, 40});
            h.ffn = Pick({300, 1000});
            h.moe.ffn = experts ? 340 : 0;
        }
        SetRope(h, 100);
        model::Layout layout;
        layout.tp = static_cast<int>(Pick({2, 3, 4}));
        layout.ep = experts ? 1 : 0;
        for (int rank = 0; Pick({0, 1}) == 0 && rank < layout.tp; ++rank) {
            layout.tp_shares.push_back(static_cast<double>(Pick({2, 3, 5})));
        }
        layout.tp_shares.resize(layout.tp_shares.empty() ? 0 : static_cast<size_t>(layout.tp), 2);
        return {h, layout};
    }

    std::vector<float> Logits(const CutCase& c, const RandomBlocks& source, CpuLevel level) {
        const auto plan = model::PlanShards(c.hyper, source, c.layout);
        EXPECT_TRUE(plan.ok()) << plan.error().message;
        if (!plan.ok()) return {};
        std::vector<program::Program> programs;
        for (const model::Shard& shard : plan->shards) {
            auto program = model::BuildProgram(c.hyper, shard, source, {});
            EXPECT_TRUE(program.ok()) << program.error().message;
            if (!program.ok()) return {};
            for (const program::Op& op : program->ops) {
                padded_ += op.kind() == program::OpKind::kPadColumns ? 1 : 0;
            }
            programs.push_back(std::move(*program));
        }
        std::vector<int32_t> tokens(kTokens);
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 50);
        const backend::CpuOptions cpu{1, {}, true, level};
        if (c.layout.tp == 1) return LoadedRank(programs[0], source, cpu).Logits(tokens, 64);
        auto fabrics =
            net::MakeLocalFabrics(c.layout.tp, net::Transport::kShm, size_t{1} << 20).value();
        std::vector<std::vector<float>> got(programs.size());
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> ranks(programs.size());
            std::iota(ranks.begin(), ranks.end(), 0);
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
            const auto r = static_cast<size_t>(fabric.rank);
            LoadedRank rank(programs[r], source, cpu);
            const size_t piece = c.hyper.heads == 4 ? 1 : 36;
            got[r] = rank.Logits(tokens, piece, OneGroup(*comm).groups);
        });
        for (const auto& logits : got) EXPECT_EQ(logits, got[0]) << "tensor ranks differ";
        return got[0];
    }

    void Check(int cases, CpuLevel level) {
        for (int i = 0; i < cases; ++i) {
            const CutCase c = RandomCase(i % 2 == 1);
            SCOPED_TRACE(fmt::format("{} {}: tp {} shares {}, {} heads of {}, ffn {}, experts {}",
                                     CpuLevelName(level), Info(GetParam()).name, c.layout.tp,
                                     fmt::join(c.layout.tp_shares, ","), c.hyper.heads,
                                     c.hyper.head_dim, c.hyper.ffn, c.hyper.moe.ffn));
            const RandomBlocks source(c.hyper, GetParam());
            const std::vector<float> one = Logits({c.hyper, {}}, source, level);
            ASSERT_EQ(Logits(c, source, level), one);
            ASSERT_FALSE(one.empty());
            ASSERT_TRUE(std::ranges::all_of(one, [](float x) { return std::isfinite(x); }));
        }
    }

    std::mt19937 random_{5};
    int padded_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Types, BlockCuts,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                         DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                                         DType::kQ6_K, DType::kIQ4_XS, DType::kIQ1_S, DType::kIQ1_M,
                                         DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
                                         DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ2_0),
                         [](const auto& test) { return std::string(Info(test.param).name); });

TEST_P(BlockCuts, GiveTheBitsOfOneRank) {
    Check(4, BestCpuLevel(DetectCpu()));
    EXPECT_EQ(padded_ > 0, Info(GetParam()).block_elements == 256);
}

TEST_P(BlockCuts, GiveTheBitsOfOneRankOnEveryLevel) {
    SKIP_TO_NIGHT_UNLESS(false);
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level != CpuLevel::kReference) Check(40, level);
    }
}

}  // namespace
}  // namespace weft::support
