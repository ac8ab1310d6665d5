// Each optimizer's update as ops: Programs pass the check for any shard of a rank.
#include "train/update/add.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/tiny_model.h"
#include "tensor/dynamic_codes.h"
#include "train/graph.h"

namespace weft::train {
namespace {

// Byte codes (value 0) and scales (value 1) of a rank.
class CodesAndScales final : public backend::HostSnapshot {
  public:
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        const auto bytes =
            id == 0 ? std::as_bytes(std::span(codes)) : std::as_bytes(std::span(scales));
        std::memcpy(out.data(), bytes.subspan(static_cast<size_t>(first_byte)).data(), out.size());
        return {};
    }
    std::vector<uint8_t> codes;
    std::vector<float> scales;
};

// A rank saves the rows that no lower rank has: with a KV head of two ranks, they may begin within
// a block of 8-bit Adam. Each element has the scale of its own block.
TEST(KeptPieces, MayBeginWithinABlock) {
    CodesAndScales state;
    state.codes.resize(40 * kStateBlock);
    for (size_t i = 0; i < state.codes.size(); ++i) state.codes[i] = static_cast<uint8_t>(i * 7);
    for (int i = 0; i < 40; ++i) state.scales.push_back(1.0f + static_cast<float>(i));
    for (const int64_t first : {int64_t{0}, int64_t{256}, int64_t{2144}, int64_t{2303}}) {
        for (const size_t count : {size_t{1}, size_t{255}, size_t{256}, size_t{2144}}) {
            for (const int64_t begin : {int64_t{0}, kKeptGrain}) {
                const KeptPiece piece{{}, {}, 0, first, 1, true};
                std::vector<float> out(count);
                ASSERT_TRUE(ReadKeptPiece(state, piece, begin, out).ok());
                for (size_t i = 0; i < count; ++i) {
                    const auto at = static_cast<size_t>(first + begin) + i;
                    ASSERT_EQ(out[i],
                              SignedCodes().value(state.codes[at]) * state.scales[at / kStateBlock])
                        << first << " " << begin << " " << i;
                }
            }
        }
    }
}

struct UpdateCase {
    const char* optimizer;
    DType dtype;
    int zero, ranks, rank;
};

class UpdateList : public testing::TestWithParam<UpdateCase> {
  protected:
    void SetUp() override {
        const auto [optimizer, dtype, zero, ranks, rank] = GetParam();
        update_.kind = *FindUpdate(optimizer);
        update_.scale_parameter = true;
        update_.momentum = dtype == DType::kF32 ? 0.9 : 0.0;
        GraphOptions options;
        options.dtype = options.gradients = dtype;
        options.zero = {.stage = zero, .ranks = ranks, .rank = rank, .unit_elements = 3000};
        options.zero.grain = UnitGrainOf(update_.kind);
        const model::Shard shard =
            model::PlanShards(hyper_, source_, model::MakeLayout(1, 1, 1, {}).value())->shards[0];
        auto graph = BuildTrainingGraph(hyper_, {&shard, 1}, source_, options);
        ASSERT_TRUE(graph.ok()) << graph.error().message;
        graph_ = std::move(*graph);
        auto cluster = cluster::Cluster::Launch({}, "");
        ASSERT_TRUE(cluster.ok());
        ASSERT_TRUE(state_.Agree(graph_.units, **cluster, 0).ok());
        rule_ = MakeUpdateRule(update_, {state_, source_, ranks > 1, rank == 0});
        AddUpdate(graph_.program, state_, *rule_, {ranks > 1, false, ranks > 1});
    }
    size_t Count(program::OpKind kind) const {
        size_t count = 0;
        for (const program::Op& op : list().ops) count += op.kind() == kind;
        return count;
    }
    const program::Program& list() const { return graph_.program.program; }

    const model::Hyper hyper_ = support::TinyHyper("qwen2", false);
    const support::TinySource source_{hyper_};
    UpdateOptions update_;
    TrainingGraph graph_;
    TrainState state_;
    std::unique_ptr<UpdateRule> rule_;
};

INSTANTIATE_TEST_SUITE_P(All, UpdateList,
                         testing::Values(UpdateCase{"adamw", DType::kF32, 0, 1, 0},
                                         UpdateCase{"adamw", DType::kBF16, 0, 3, 2},
                                         UpdateCase{"adam", DType::kF32, 1, 2, 1},
                                         UpdateCase{"sgd", DType::kF32, 1, 3, 0},
                                         UpdateCase{"sgd", DType::kBF16, 2, 2, 1},
                                         UpdateCase{"adam8bit", DType::kBF16, 2, 2, 0},
                                         UpdateCase{"adam8bit", DType::kF32, 3, 3, 2},
                                         UpdateCase{"adamw", DType::kF32, 3, 40, 39},
                                         UpdateCase{"lion", DType::kBF16, 2, 3, 1},
                                         UpdateCase{"muon", DType::kBF16, 0, 2, 1},
                                         UpdateCase{"adafactor", DType::kF32, 0, 1, 0},
                                         UpdateCase{"adafactor", DType::kBF16, 3, 2, 1}));

TEST_P(UpdateList, PassesTheCheck) {
    const Status checked = program::CheckShapes(list());
    EXPECT_TRUE(checked.ok()) << checked.error().message;
    const program::Update& update = graph_.program.update;
    EXPECT_EQ(update.sum_begin, graph_.program.chunks.back().end);
    EXPECT_LT(update.sum_begin, update.apply_begin);
    EXPECT_LT(update.apply_begin, update.end);
    EXPECT_EQ(update.end, list().ops.size());
}

// Each element of the rank's part once; the norm counts no element twice.
TEST_P(UpdateList, CoversTheOwnPart) {
    int64_t updated = 0, own = 0, squared = 0, sole = 0;
    const auto count = [&](const auto& runs) {
        for (const auto& run : runs) {
            if constexpr (requires { run.count; }) {
                updated += run.count;
            } else {
                updated += run.range.end - run.range.begin;
            }
        }
    };
    for (const program::Op& op : list().ops) {
        if (const auto* a = op.attributes.If<program::AdamUpdate>()) count(a->runs);
        if (const auto* a = op.attributes.If<program::Adam8bitUpdate>()) {
            count(a->adam.runs);
        }
        if (const auto* a = op.attributes.If<program::SgdUpdate>()) count(a->runs);
        if (const auto* a = op.attributes.If<program::LionUpdate>()) count(a->runs);
        if (const auto* a = op.attributes.If<program::MuonUpdate>()) {
            for (const UpdateMatrix& m : a->matrices) updated += m.rows * m.cols;
        }
        if (const auto* a = op.attributes.If<program::AdafactorUpdate>()) count(a->runs);
        if (const auto* a = op.attributes.If<program::AddSquares>()) {
            for (const ElementRange& range : a->ranges) squared += range.end - range.begin;
        }
    }
    for (const OwnPart& part : state_.parts()) {
        VisitPieces(part, Extent::kOwn,
                    [&](const MemberPiece& piece) { own += piece.region.elements(); });
        for (const ElementRange& range : part.sole) sole += range.end - range.begin;
    }
    EXPECT_EQ(updated, own);
    EXPECT_EQ(squared, sole);
}

// The update sums values that are replicated on all ranks, at every stage of ZeRO.
TEST_P(UpdateList, SumsWhatThePassesHaveNot) {
    size_t whole = 0, shared = 0, published = 0;
    for (const OwnPart& part : state_.parts()) {
        if (part.unit->whole) ++whole;
        if (!part.unit->whole && !part.unit->gradients_shared) ++shared;
        if (!part.unit->whole && !part.unit->weights_shared) ++published;
    }
    const bool alone = GetParam().ranks == 1;
    const size_t norms = alone ? 0 : update_.kind == UpdateKind::kAdafactor ? 3 : 1;
    EXPECT_EQ(Count(program::OpKind::kSumOver), alone ? 0 : whole + norms);
    size_t anew = 0, gathered = 0;
    for (size_t i = graph_.program.update.sum_begin; i < list().ops.size(); ++i) {
        anew += list().ops[i].kind() == program::OpKind::kZeroReduceScatter;
        gathered += list().ops[i].kind() == program::OpKind::kZeroAllGather;
    }
    EXPECT_EQ(anew, alone ? 0 : shared);
    EXPECT_EQ(gathered, alone ? 0 : published);
}

}  // namespace
}  // namespace weft::train
