// Gradients of whole models in double: against finite differences, and each layout against one
// rank. The interpreter runs the Programs that model/ builds.
#include <gtest/gtest.h>

#include "support/training.h"

namespace weft::support {
namespace {

struct Case {
    std::string architecture;
    bool tied;
    bool experts = false;
    std::string Name() const {
        return architecture + (tied ? "Tied" : "") + (experts ? "Experts" : "");
    }
};
void PrintTo(const Case& model, std::ostream* out) {
    *out << model.Name();
}

class Models : public testing::TestWithParam<Case> {
  protected:
    const model::Hyper hyper_ = GetParam().experts
                                    ? TinyExpertHyper(GetParam().architecture)
                                    : TinyHyper(GetParam().architecture, GetParam().tied);
    TinySource source_{hyper_};
    const Batch batch_ = MakeBatch(hyper_, {5, 1, 4});

    Tensors OneRank() {
        Training<double> training(hyper_, source_, {});
        training.Run(batch_);
        return training.Gradients(0);
    }
};

INSTANTIATE_TEST_SUITE_P(All, Models,
                         testing::Values(Case{"llama", false}, Case{"llama", true},
                                         Case{"qwen2", true}, Case{"qwen3", false},
                                         Case{"llama", false, true}, Case{"qwen3moe", false, true},
                                         Case{"qwen2moe", false, true}),
                         [](const auto& test) { return test.param.Name(); });

int64_t Count(const program::Differentiated& rank, OpKind kind) {
    const auto& ops = rank.program.ops;
    return std::count_if(ops.begin() + static_cast<int64_t>(rank.backward_begin), ops.end(),
                         [&](const Op& op) { return op.kind() == kind; });
}

// L at weights moved by `step` along `direction` of one tensor.
double Loss(Training<double>& training, const Batch& batch, const std::string& tensor,
            const std::vector<double>& direction, double step) {
    const program::Program& program = training.world().program(0);
    const ValueId weight = program.Find(tensor);
    const std::vector<double> kept = training.world().at(0, weight);
    for (size_t i = 0; i < kept.size(); ++i) {
        training.world().at(0, weight)[i] += step * direction[i];
    }
    training.Run(batch);
    training.world().at(0, weight) = kept;
    double loss = 0;
    for (size_t i = 0; i < batch.dlogits.size(); ++i) {
        loss += batch.dlogits[i] * training.Logits()[i];
    }
    return loss;
}

// The five-point rule's error is h^4/30 of the fifth derivative, which for weights of order one is
// some 1e2 of the loss: 1e-14 at h = 1e-4; rounding adds 1e-15 * loss / h = 1e-10.
TEST_P(Models, GradientsEqualFiniteDifferences) {
    const Tensors gradients = OneRank();
    Training<double> training(hyper_, source_, {});
    EXPECT_EQ(gradients.size(), source_.data().size());
    for (const auto& [name, gradient] : gradients) {
        std::vector<double> direction;
        for (size_t i = 0; i < gradient.size(); ++i) {
            direction.push_back(Formula("direction " + name, static_cast<uint32_t>(i)));
        }
        const auto at = [&](double step) { return Loss(training, batch_, name, direction, step); };
        const double h = 1e-4;
        const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        double along = 0, size = 0;
        for (size_t i = 0; i < gradient.size(); ++i) {
            along += gradient[i] * direction[i];
            size += std::abs(gradient[i] * direction[i]);
        }
        EXPECT_GT(size, 0) << name;
        EXPECT_LE(std::abs(along - slope), 1e-8 * (1 + size)) << name;
    }
}

model::Layout Tp(int tp, std::vector<double> shares = {}) {
    return {tp, 1, std::move(shares), {}};
}

// Double precision: layouts differ by the order of sums only.
constexpr double kSame = 1e-12;

void ExpectSame(const Tensors& gradients, const Tensors& expected, const std::string& what) {
    EXPECT_EQ(gradients.size(), expected.size()) << what;
    for (const auto& [name, gradient] : expected) {
        ASSERT_TRUE(gradients.contains(name)) << what << ": no gradient of " << name;
        EXPECT_LE(RelativeError(gradients.at(name), gradient), kSame) << what << ": " << name;
    }
}

TEST_P(Models, EveryLayoutGivesTheGradientsOfOneRank) {
    const Tensors expected = OneRank();
    const std::vector<std::pair<std::string, model::Layout>> layouts = {
        {"TP 2: a KV head on both ranks", Tp(2, {1, 1})},
        {"TP 2: heads cut between KV heads", Tp(2, {2, 1})},
        {"TP 3", Tp(3)},
        {"TP 4: more ranks than KV heads", Tp(4, {2, 1, 2, 1})},
        {"PP 2", {1, 2, {}, {}}},
        {"TP 2 x PP 2", {2, 2, {3, 2}, {1, 1}}},
    };
    for (const auto& [what, layout] : layouts) {
        Training<double> training(hyper_, source_, layout);
        training.Run(batch_);
        ExpectSame(training.Gradients(kSame), expected, what);
    }
}

// Groups of whole experts, also of unequal sizes, and experts divided by columns within a group.
TEST_P(Models, ExpertGroupsGiveTheGradientsOfOneRank) {
    if (!GetParam().experts) return;
    const Tensors expected = OneRank();
    const std::vector<std::pair<std::string, model::Layout>> layouts = {
        {"EP 2", {2, 1, {}, {}, 2}},        {"EP 2, uneven", {2, 1, {3, 1}, {}, 2}},
        {"EP 3", {3, 1, {}, {}, 3}},        {"EP 2 x 2 columns", {4, 1, {}, {}, 2}},
        {"EP 2 x PP 2", {2, 2, {}, {}, 2}},
    };
    for (const auto& [what, layout] : layouts) {
        Training<double> training(hyper_, source_, layout);
        training.Run(batch_);
        ExpectSame(training.Gradients(kSame), expected, what);
    }
}

// Sequence parallelism: rows that do not divide by the ranks, gathers that run again, and less
// memory, by what ranks no longer all hold.
TEST_P(Models, RowSharesGiveTheGradientsOfOneRank) {
    using program::Recompute;
    const Tensors expected = OneRank();
    const std::vector<std::pair<std::string, model::Layout>> layouts = {
        {"TP 2", Tp(2, {2, 1})},
        {"TP 3: 10 rows", Tp(3)},
        {"TP 2 x PP 2", {2, 2, {}, {}}},
    };
    for (const auto& [what, layout] : layouts) {
        for (const Recompute recompute :
             {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
            Training<double> whole(hyper_, source_, layout, {}, recompute);
            Training<double> training(hyper_, source_, layout, {}, recompute, false, true);
            training.Run(batch_);
            ExpectSame(training.Gradients(kSame), expected, what);
            const auto bytes = [](const Training<double>& run) {
                return program::PlanArena(run.ranks()[0].program, 512, 512).size_bytes;
            };
            // (A stage of one layer keeps too little for it to count.)
            if (layout.pp == 1) {
                EXPECT_LT(bytes(training), bytes(whole)) << what;
            }
            EXPECT_GT(Count(training.ranks()[0], OpKind::kReduceScatterRows), 0);
        }
    }
}

// A step of fewer rows than ranks.
TEST_P(Models, RanksWithoutRowsTakePart) {
    const Batch row = MakeBatch(hyper_, {1});
    Training<double> one(hyper_, source_, {});
    one.Run(row);
    Training<double> training(hyper_, source_, Tp(3), {}, program::Recompute::kNone, false, true);
    training.Run(row);
    ExpectSame(training.Gradients(kSame), one.Gradients(0), "TP 3, one row");
}

// Recomputed values, and so the gradients, have the same bits; recomputing takes less memory.
TEST_P(Models, RecomputedGradientsAreTheSame) {
    using program::Recompute;
    for (const model::Layout& layout : {model::Layout{}, Tp(2, {2, 1})}) {
        Training<double> kept(hyper_, source_, layout);
        kept.Run(batch_);
        int64_t least = program::PlanArena(kept.ranks()[0].program, 512, 512).size_bytes;
        for (const Recompute what : {Recompute::kSelective, Recompute::kFull}) {
            Training<double> training(hyper_, source_, layout, {}, what);
            training.Run(batch_);
            EXPECT_EQ(training.Gradients(kSame), kept.Gradients(kSame));
            const int64_t bytes =
                program::PlanArena(training.ranks()[0].program, 512, 512).size_bytes;
            EXPECT_LT(bytes, least);
            least = bytes;
        }
    }
}

// Partial gradients of whole weights must not be all-reduced together with sums of earlier steps.
TEST_P(Models, GradientsOfTwoStepsAdd) {
    Tensors expected = OneRank();
    for (auto& [name, gradient] : expected) {
        for (double& value : gradient) value *= 2;
    }
    Training<double> training(hyper_, source_, Tp(2));
    training.Run(batch_);
    training.Run(batch_);
    ExpectSame(training.Gradients(kSame), expected, "TP 2, two steps");
}

// Two all-reduces a layer and one before the final norm, as forward has; the rest is what QK norm
// (one for each of its weights) and KV heads on two ranks (one for K, one for V) cost.
TEST_P(Models, BackwardAllReducesAsOftenAsForward) {
    const bool norm = hyper_.architecture.starts_with("qwen3");
    // (And what experts' weights of rows, and a shared expert's gate, get from each rank.)
    const bool gate = hyper_.architecture == "qwen2moe";
    const int64_t layer_norms = (norm ? 2 : 0) + (GetParam().experts ? 1 : 0) + (gate ? 1 : 0);
    for (const double first_share : {1.0, 2.0}) {
        Training<double> training(hyper_, source_, Tp(2, {first_share, 1}));
        const int64_t shared = first_share == 1.0 ? 2 : 0;
        EXPECT_EQ(Count(training.ranks()[0], OpKind::kAllReduce),
                  hyper_.layers * (2 + layer_norms + shared) + 1);
    }
    Training<double> alone(hyper_, source_, {});
    EXPECT_EQ(Count(alone.ranks()[0], OpKind::kAllReduce), 0);
    EXPECT_EQ(Count(alone.ranks()[0], OpKind::kSliceColumns), 0);
}

// A frozen weight gets no gradient and costs no op; the others' stay the same.
TEST_P(Models, FrozenWeightsLeaveTheOthersGradients) {
    Tensors expected = OneRank();
    std::vector<std::string> frozen = {"token_embd.weight"};
    for (const auto& [name, tensor] : source_.data()) {
        if (name.starts_with("blk.0.")) frozen.push_back(name);
    }
    for (const std::string& name : frozen) expected.erase(name);
    Training<double> training(hyper_, source_, Tp(2), frozen);
    training.Run(batch_);
    ExpectSame(training.Gradients(kSame), expected, "frozen");
    for (const Op& op : training.ranks()[0].program.ops) {
        EXPECT_NE(op.kind(), OpKind::kEmbeddingGrad);
    }
    EXPECT_EQ(Count(training.ranks()[0], OpKind::kAttentionGrad), hyper_.layers - 1);
}

// The arena's plan and the shape check know the backward ops.
TEST_P(Models, BackwardProgramHasOnePlanAndTheForwardInFront) {
    const auto forward = Build(hyper_, source_, Tp(2), {DType::kF32, false});
    Training<double> training(hyper_, source_, Tp(2));
    const program::Differentiated& rank = training.ranks()[1];
    EXPECT_TRUE(program::CheckShapes(rank.program).ok());
    ASSERT_EQ(rank.backward_begin, forward[1].ops.size());
    for (size_t i = 0; i < forward[1].values.size(); ++i) {
        EXPECT_EQ(rank.program.values[i].name, forward[1].values[i].name);
    }
    EXPECT_GT(program::PlanArena(rank.program, 10, 6).size_bytes, 0);
}

}  // namespace
}  // namespace weft::support
