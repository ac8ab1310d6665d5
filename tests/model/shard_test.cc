// The shard plan for random models, layouts and shares: together, the ranks hold every element of
// every tensor exactly once, except KV heads that are replicated on purpose.
#include "model/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "model/model_shape.h"
#include "support/tiny_model.h"

namespace weft::model {
namespace {

using support::TinySource;

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    int64_t Int(int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(engine_);
    }
    template <typename T>
    T Pick(std::initializer_list<T> list) {
        return *(list.begin() + Int(0, static_cast<int64_t>(list.size()) - 1));
    }

  private:
    std::mt19937 engine_;
};

Hyper RandomHyper(Random& random, DType dtype) {
    const int64_t block = Info(dtype).block_elements;
    Hyper h;
    h.architecture = random.Pick({"llama", "qwen2", "qwen3"});
    h.layers = random.Int(1, 4);
    h.kv_heads = random.Int(1, 8);
    h.heads = h.kv_heads * random.Int(1, 5);
    h.head_dim = random.Pick<int64_t>({32, 64, 96, 128});
    // The columns of every quantized tensor must be whole blocks.
    while (h.heads * h.head_dim % block != 0) h.head_dim += 32;
    h.hidden = 32 * random.Int(1, 8) * std::max<int64_t>(1, block / 32);
    h.ffn = 32 * random.Int(1, 20) * std::max<int64_t>(1, block / 32);
    h.vocab = random.Int(16, 700);
    h.tied = random.Int(0, 1) == 1;
    support::SetRope(h, 10000);
    return h;
}

Layout RandomLayout(Random& random) {
    Layout layout;
    layout.tp = static_cast<int>(random.Int(1, 6));
    layout.pp = static_cast<int>(random.Int(1, 4));
    const auto shares = [&](int count) {
        std::vector<double> list;
        for (int i = 0; i < count; ++i) list.push_back(static_cast<double>(random.Int(1, 9)));
        return list;
    };
    if (random.Int(0, 1) == 1) layout.tp_shares = shares(layout.tp);
    if (random.Int(0, 1) == 1) layout.pp_shares = shares(layout.pp);
    return layout;
}

// Counts how often each element of each tensor is held, in steps of 32 columns: all cuts of these
// models are multiples of that. Vectors count as one row of columns.
class Held {
  public:
    explicit Held(const TinySource& source) {
        for (const model_files::TensorInfo& info : source.tensors()) {
            const auto steps = static_cast<size_t>(info.rows * (info.cols / 32));
            counts_[info.name] = {info.cols / 32, std::vector<int>(steps, 0)};
        }
    }
    // Counts all weights; for weights that multiply padded activations, only the columns without
    // padding.
    void Add(const program::Program& program) {
        std::map<program::ValueId, std::pair<int64_t, int64_t>> padded;
        for (const program::Op& op : program.ops) {
            if (op.kind() == program::OpKind::kPadColumns) {
                padded[op.outputs[0]] = {op.as<program::PadColumns>().begin,
                                         program.value(op.inputs[0]).shape[1]};
            }
            if (op.kind() != program::OpKind::kMatMul || !padded.contains(op.inputs[0])) continue;
            const auto [begin, cols] = padded[op.inputs[0]];
            program::Value own = program.value(op.inputs[1]);
            ASSERT_LT(own.shape[1] - cols, 2 * 256) << "more than one block at either end";
            own.slice.col_begin += begin;
            own.shape.dims[1] = cols;
            Add(own);
            padded[op.inputs[1]] = {};  // counted
        }
        for (size_t i = 0; i < program.values.size(); ++i) {
            const program::Value& value = program.values[i];
            const bool counted = padded.contains(static_cast<program::ValueId>(i));
            if (value.storage == program::Storage::kWeight && !counted) Add(value);
        }
    }
    void Add(const program::Value& value) {
        auto& [steps, counts] = counts_.at(value.slice.name);
        const bool vector = value.shape.rank == 1;
        const int64_t row_begin = vector ? 0 : value.slice.row_begin;
        const int64_t col_begin = vector ? value.slice.row_begin : value.slice.col_begin;
        const int64_t rows = vector ? 1 : value.shape[0];
        const int64_t width = value.shape[value.shape.rank - 1];
        ASSERT_EQ(col_begin % 32 + width % 32, 0) << value.slice.name;
        ASSERT_LE(col_begin + width, steps * 32) << value.slice.name;
        for (int64_t row = row_begin; row < row_begin + rows; ++row) {
            for (int64_t step = col_begin / 32; step < (col_begin + width) / 32; ++step) {
                ++counts.at(static_cast<size_t>(row * steps + step));
            }
        }
    }
    const auto& counts() const { return counts_; }

  private:
    std::map<std::string, std::pair<int64_t, std::vector<int>>> counts_;
};

bool IsKv(const std::string& name) {
    return name.find("attn_k.") != std::string::npos || name.find("attn_v.") != std::string::npos;
}

void ExpectEachElementHeld(const Held& held, const Hyper& hyper, const ShardPlan& plan) {
    const Layout& layout = plan.shards[0].layout;
    for (const auto& [name, tensor] : held.counts()) {
        const bool norm = name.find("norm") != std::string::npos;
        const bool both_ends = name == "token_embd.weight" && hyper.tied && layout.pp > 1;
        const int times = norm ? layout.tp : both_ends ? 2 : 1;
        for (const int count : tensor.second) {
            if (IsKv(name) && plan.shards[0].kv_replicated) {
                ASSERT_GE(count, 1) << name;
                ASSERT_LE(count, layout.tp) << name;
            } else {
                ASSERT_EQ(count, times) << name;
            }
        }
    }
}

void ExpectGoodShards(const ShardPlan& plan, const Hyper& hyper, DType dtype) {
    const int64_t head_block = CutBlock(dtype, hyper.heads * hyper.head_dim);
    const int64_t ffn_block = CutBlock(dtype, hyper.ffn);
    for (const Shard& shard : plan.shards) {
        EXPECT_GT(shard.layers.size(), 0);
        EXPECT_GT(shard.heads.size(), 0);
        EXPECT_GT(shard.ffn.size(), 0);
        EXPECT_GT(shard.vocab.size(), 0);
        EXPECT_EQ(shard.heads.begin * hyper.head_dim % head_block, 0) << "inside a block";
        EXPECT_EQ(shard.ffn.begin % ffn_block, 0) << "inside a block";
        EXPECT_EQ(shard.vocab.begin % 16, 0) << "inside a strip";
        EXPECT_EQ(shard.kv_heads.begin, shard.heads.begin / hyper.group());
        EXPECT_EQ(shard.kv_heads.end, (shard.heads.end - 1) / hyper.group() + 1);
        EXPECT_EQ(shard.rank, shard.stage * shard.layout.tp + shard.tensor_rank);
        EXPECT_EQ(std::accumulate(shard.vocab_parts.begin(), shard.vocab_parts.end(), int64_t{0}),
                  hyper.vocab);
        EXPECT_EQ(shard.vocab_parts[static_cast<size_t>(shard.tensor_rank)], shard.vocab.size());
    }
}

TEST(Shards, HoldEveryElementOfEveryTensorOnce) {
    int planned = 0, replicated = 0;
    for (uint32_t seed = 0; seed < 120; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Random random(seed);
        const DType dtype = random.Pick({DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K});
        const Hyper hyper = RandomHyper(random, dtype);
        const TinySource source(hyper, dtype);
        const auto plan = PlanShards(hyper, source, RandomLayout(random));
        if (!plan.ok()) {
            EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported) << plan.error().message;
            continue;
        }
        ++planned;
        replicated += plan->shards[0].kv_replicated ? 1 : 0;
        ExpectGoodShards(*plan, hyper, dtype);
        Held held(source);
        for (const Shard& shard : plan->shards) {
            const auto program = BuildProgram(hyper, shard, source, {});
            ASSERT_TRUE(program.ok()) << program.error().message;
            held.Add(*program);
        }
        ExpectEachElementHeld(held, hyper, *plan);
    }
    EXPECT_GT(planned, 50);
    EXPECT_GT(replicated, 5);
}

// A refused plan asks for the impossible, more ranks than units, and the error states how many
// ranks work.
TEST(Shards, RefusedPlansNameAWidthThatWorks) {
    int refused = 0;
    for (uint32_t seed = 0; seed < 250; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Random random(seed + 1000);
        const DType dtype = random.Pick({DType::kF32, DType::kQ4_0, DType::kQ4_K});
        const Hyper hyper = RandomHyper(random, dtype);
        const TinySource source(hyper, dtype);
        Layout layout = RandomLayout(random);
        layout.pp = 1;
        layout.pp_shares.clear();
        for (int tries = 0; tries < 4; ++tries) {
            const auto plan = PlanShards(hyper, source, layout);
            if (plan.ok()) break;
            ++refused;
            const std::string& message = plan.error().message;
            const size_t at = message.find("At most --tp ");
            ASSERT_NE(at, std::string::npos) << message;
            const int most = std::atoi(message.c_str() + at + 13);
            ASSERT_LT(most, layout.tp) << message;
            ASSERT_GT(most, 0) << message;
            layout = {most, 1, {}, {}};
        }
        EXPECT_TRUE(PlanShards(hyper, source, layout).ok());
    }
    EXPECT_GT(refused, 10);
}

// Each rank's part of the weights is within one unit of its share.
TEST(Shards, FollowTheShares) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Random random(seed);
        Hyper hyper = RandomHyper(random, DType::kF32);
        hyper.vocab = 4096;
        hyper.ffn = 2048;
        const TinySource source(hyper, DType::kF32);
        Layout layout = RandomLayout(random);
        layout.tp_shares.resize(static_cast<size_t>(layout.tp), 5);
        const auto plan = PlanShards(hyper, source, layout);
        if (!plan.ok()) continue;
        const double sum = std::accumulate(layout.tp_shares.begin(), layout.tp_shares.end(), 0.0);
        for (int rank = 0; rank < layout.tp; ++rank) {
            const Shard& shard = plan->shards[static_cast<size_t>(rank)];
            const double part = layout.tp_shares[static_cast<size_t>(rank)] / sum;
            EXPECT_LE(std::abs(static_cast<double>(shard.ffn.size()) - 2048 * part), 64);
            EXPECT_LE(std::abs(static_cast<double>(shard.vocab.size()) - 4096 * part), 16);
        }
    }
}

TEST(Shards, SmolLm2CutsAtTwoThreeAndFourRanks) {
    const Hyper hyper = support::SmolLm2Hyper();
    const TinySource source(hyper, DType::kQ4_1);
    for (const int tp : {1, 2, 3, 4, 9}) {
        const auto plan = PlanShards(hyper, source, {tp, 1, {}, {}});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        EXPECT_EQ(plan->shards[0].kv_replicated, tp != 1 && tp != 3);
    }
    const auto ten = PlanShards(hyper, source, {10, 1, {}, {}});
    ASSERT_FALSE(ten.ok());
    EXPECT_NE(ten.error().message.find("At most --tp 9"), std::string::npos) << ten.error().message;
}

// Their layers have neither attention nor an MLP: their own weights count.
TEST(Shards, StagesOfRecurrentModelsHaveEqualWeights) {
    const auto shape = ModelShape::Make(
        R"({"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80,
            "head_dim": 64, "state_size": 128, "n_groups": 1, "vocab_size": 50288,
            "tie_word_embeddings": true})",
        "mamba2-2.7b", false);
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    const auto hyper = ReadHyper(**shape);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    // (A layer has 40 million weights, and the output matrix 129 million.)
    for (const auto& [pp, expected] :
         {std::pair{2, std::vector<int64_t>{34, 30}}, {4, {17, 17, 16, 14}}}) {
        const auto plan = PlanShards(*hyper, **shape, *MakeLayout(pp, 1, pp, {}));
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        std::vector<int64_t> layers;
        for (const Shard& shard : plan->shards) layers.push_back(shard.layers.size());
        EXPECT_EQ(layers, expected);
    }
}

TEST(Shards, NoteCutsMovedByABlock) {
    Hyper hyper = support::SmolLm2Hyper();
    hyper.heads = 8;
    hyper.kv_heads = 4;
    hyper.hidden = 512;
    hyper.ffn = 4352;  // 17 blocks of 256
    const auto plan = PlanShards(hyper, TinySource(hyper, DType::kQ4_K), {2, 1, {}, {}});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_EQ(plan->notes.size(), 1u);
    EXPECT_NE(plan->notes[0].find("MLP columns moved from 2176 to 2304"), std::string::npos)
        << plan->notes[0];
}

// Narrow matrices are cut inside blocks, except for training.
TEST(Shards, CutNarrowMatricesInsideOfBlocks) {
    Hyper hyper = support::SmolLm2Hyper();
    hyper.heads = 9;
    hyper.kv_heads = 3;
    hyper.head_dim = 256;
    hyper.hidden = 512;
    hyper.ffn = 1280;  // 5 blocks of 256
    const TinySource source(hyper, DType::kQ4_K);
    const auto plan = PlanShards(hyper, source, {2, 1, {}, {}});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->notes.empty());
    EXPECT_EQ(plan->shards[1].ffn, (Span{640, 1280}));
    Layout layout{2, 1, {}, {}};
    layout.whole_blocks = true;
    EXPECT_EQ(PlanShards(hyper, source, layout)->shards[1].ffn, (Span{768, 1280}));
    EXPECT_EQ(PlanShards(hyper, source, {9, 1, {}, {}})->shards[8].ffn.size() % 64, 0);
    const auto program = BuildProgram(hyper, plan->shards[1], source, {});
    ASSERT_TRUE(program.ok()) << program.error().message;
    const program::ValueId down = program->Find("blk.0.ffn_down.weight");
    EXPECT_EQ(program->value(down).shape, (program::Shape{512, 768}));
    EXPECT_EQ(program->value(down).slice.col_begin, 512);
}

TEST(Layout, OfRanksAndShares) {
    EXPECT_EQ(MakeLayout(4, 0, 0, {})->tp, 4);
    EXPECT_EQ(MakeLayout(4, 0, 2, {})->tp, 2);
    EXPECT_EQ(MakeLayout(6, 3, 0, {})->pp, 2);
    EXPECT_EQ(MakeLayout(3, 3, 0, {3, 2, 1})->tp_shares, (std::vector<double>{3, 2, 1}));
    EXPECT_EQ(MakeLayout(3, 0, 3, {3, 2, 1})->pp_shares, (std::vector<double>{3, 2, 1}));
    EXPECT_EQ(MakeLayout(6, 2, 3, {2, 1, 3, 2, 1})->pp_shares, (std::vector<double>{3, 2, 1}));
    for (const auto& [ranks, tp, pp] : {std::tuple{4, 3, 0}, {4, 2, 3}, {0, 0, 0}, {3, 5, 0}}) {
        const auto layout = MakeLayout(ranks, tp, pp, {});
        ASSERT_FALSE(layout.ok()) << ranks << " " << tp << " " << pp;
        EXPECT_EQ(layout.error().code, ErrorCode::kUsage);
    }
    EXPECT_FALSE(MakeLayout(4, 2, 2, {1, 2, 3}).ok());
    // One stage, or one tensor rank, needs no share of its own.
    for (const auto& [tp, pp] : {std::pair{2, 1}, {1, 2}}) {
        const auto layout = MakeLayout(2, tp, pp, {1, 2, 3});
        ASSERT_FALSE(layout.ok()) << tp << " " << pp;
        EXPECT_TRUE(layout.error().message.find("has 3 shares") != std::string::npos &&
                    layout.error().message.find("needs 2 (one per") != std::string::npos)
            << layout.error().message;
    }
}

TEST(Layout, ParsesShares) {
    EXPECT_EQ(*ParseShares("3,2,1"), (std::vector<double>{3, 2, 1}));
    EXPECT_EQ(*ParseShares("0.5"), (std::vector<double>{0.5}));
    // As many as the largest job has tensor ranks or stages.
    std::string many = "1";
    for (int rank = 1; rank < 4096; ++rank) many += ",1";
    const auto all = ParseShares(many);
    ASSERT_TRUE(all.ok());
    EXPECT_TRUE(MakeLayout(4096, 4096, 1, *all).ok());
    EXPECT_FALSE(ParseShares(many + "," + many + ",1").ok());
    for (const char* bad :
         {",", "1,", "1,,2", "0", "-1", "nan", "inf", "1;2", "1e9", "a", "1 ,2"}) {
        EXPECT_FALSE(ParseShares(bad).ok()) << "'" << bad << "'";
    }
}

}  // namespace
}  // namespace weft::model
