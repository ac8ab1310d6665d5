// Accumulation type of gradients: many passes against their exact sum, and the choice of "auto".
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "support/pass_run.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "tensor/half_rows.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

constexpr int64_t kGradDtypeSequences = 8, kGradDtypeLength = 12, kGradDtypeVocab = 200;

std::vector<float> ReadGradients(backend::Executable& executable, const program::FlatBucket& unit) {
    std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(unit.gradient_dtype, unit.elements)));
    EXPECT_TRUE(executable.Read(unit.gradients, 0, bytes).ok());
    std::vector<float> floats(static_cast<size_t>(unit.elements));
    if (unit.gradient_dtype == DType::kF32) {
        std::memcpy(floats.data(), bytes.data(), bytes.size());
    } else {
        WidenRow(unit.gradient_dtype, bytes.data(), floats);
    }
    return floats;
}

// All gradients of a trainer, unit by unit.
std::vector<float> GradientsOf(const Trainer& trainer) {
    std::vector<float> all;
    for (const OwnPart& part : trainer.state().parts()) {
        const std::vector<float> unit = ReadGradients(trainer.executable(), *part.unit);
        all.insert(all.end(), unit.begin(), unit.end());
    }
    return all;
}

double NormOf(const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return std::sqrt(squares);
}

class GradType : public testing::Test {
  protected:
    void SetUp() override {
        model::Hyper hyper = support::OddHyper();
        hyper.layers = 1, hyper.hidden = 64, hyper.ffn = 96, hyper.heads = 2, hyper.kv_heads = 1;
        hyper.vocab = kGradDtypeVocab;
        support::WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF32});
        for (int64_t i = 0; i < kGradDtypeSequences; ++i) {
            Sequence sequence;
            for (int64_t at = 0; at < kGradDtypeLength; ++at) {
                const auto token = [&](int64_t place) {
                    return static_cast<int32_t>((i * 7919 + place * 104729 + place * place) %
                                                kGradDtypeVocab);
                };
                sequence.tokens.push_back(token(at));
                sequence.targets.push_back(token(at + 1));
            }
            sequence.begins = {0};
            sequence.used = kGradDtypeLength;
            sequences_.push_back(std::move(sequence));
        }
    }
    // The sequences repeated, one per pass.
    Batch Repeated(int64_t passes) const {
        Batch batch;
        for (int64_t i = 0; i < passes; ++i) {
            batch.sequences.push_back(sequences_[static_cast<size_t>(i % kGradDtypeSequences)]);
        }
        batch.global_sequences = static_cast<uint64_t>(passes);
        batch.global_targets = static_cast<uint64_t>(passes * kGradDtypeLength);
        return batch;
    }
    TrainerOptions Options(const std::string& grad_dtype, int64_t passes) const {
        TrainerOptions options;
        options.model = model_;
        options.threads = 1;
        options.sequence = kGradDtypeLength;
        options.accumulation = passes;
        options.dtype = DType::kBF16;
        options.grad_dtype = grad_dtype;
        options.clip = 0;
        return options;
    }
    // Gradients of one step, before the update.
    std::vector<float> Sum(const std::string& grad_dtype, const Batch& batch) const {
        auto cluster = cluster::Cluster::Launch({}, "");
        EXPECT_TRUE(cluster.ok()) << cluster.error().message;
        auto trainer = Trainer::Make(
            Options(grad_dtype, static_cast<int64_t>(batch.sequences.size())), **cluster);
        EXPECT_TRUE(trainer.ok()) << trainer.error().message;
        std::vector<float> sum;
        (*trainer)->SetBeforeUpdate([&]() -> Status {
            sum = GradientsOf(**trainer);
            return {};
        });
        const auto report = (*trainer)->Step(batch, 0);
        EXPECT_TRUE(report.ok()) << report.error().message;
        return sum;
    }
    // Sums in float64 of each sequence's own gradients.
    std::vector<double> Exact(const Batch& batch) const {
        std::vector<double> exact;
        for (size_t i = 0; i < sequences_.size(); ++i) {
            Batch one = batch;
            one.sequences = {sequences_[i]};
            const std::vector<float> gradient = Sum("f32", one);
            exact.resize(gradient.size());
            const auto times = static_cast<double>(batch.sequences.size() / sequences_.size());
            for (size_t j = 0; j < gradient.size(); ++j) exact[j] += times * gradient[j];
        }
        return exact;
    }
    static double Error(const std::vector<float>& sum, const std::vector<double>& exact) {
        std::vector<double> off(exact.size());
        for (size_t i = 0; i < off.size(); ++i) off[i] = sum.at(i) - exact[i];
        return NormOf(off) / NormOf(exact);
    }

    const test::TempDir folder_;
    const std::string model_ = folder_ / "tiny.gguf";
    std::vector<Sequence> sequences_;
};

// Each sum has an error of at most 2^-24 of its size (BF16: 2^-8). A sum exceeds the last one by at
// most one round of the sequences, whose gradients are equal each time.
TEST_F(GradType, ManyPassesAddUpToTheirSum) {
    for (const int64_t passes : {256, 4096}) {
        SCOPED_TRACE(passes);
        const Batch batch = Repeated(passes);
        const std::vector<double> exact = Exact(batch);
        const double bound = static_cast<double>(passes) * 0x1p-24 * 1.1;
        const double wide = Error(Sum("f32", batch), exact);
        EXPECT_TRUE(wide <= bound) << wide;
        if (passes == 256) {
            EXPECT_EQ(Sum("auto", batch), Sum("f32", batch));
        }
        const double narrow = Error(Sum("bf16", batch), exact);
        EXPECT_GT(narrow, 5e-3) << "what is measured is no more than float32's";
        RecordProperty(fmt::format("f32_{}", passes), fmt::format("{:.3g}", wide));
        RecordProperty(fmt::format("bf16_{}", passes), fmt::format("{:.3g}", narrow));
    }
}

// Few passes use the narrow type, without extra memory.
TEST_F(GradType, FewPassesStayNarrow) {
    const Batch batch = Repeated(kNarrowSums);
    EXPECT_EQ(Sum("auto", batch), Sum("bf16", batch));
    EXPECT_NE(Sum("auto", batch), Sum("f32", batch));
}

TEST_F(GradType, AutoCountsPassesAndReplicas) {
    const struct {
        const char* asked;
        DType dtype;
        int64_t passes, replicas;
        DType expected;
    } cases[] = {
        {"auto", DType::kBF16, 8, 1, DType::kBF16},  {"auto", DType::kBF16, 9, 1, DType::kF32},
        {"auto", DType::kBF16, 1, 8, DType::kBF16},  {"auto", DType::kBF16, 3, 3, DType::kF32},
        {"auto", DType::kF16, 64, 1, DType::kF32},   {"auto", DType::kF16, 2, 2, DType::kF16},
        {"auto", DType::kF32, 64, 64, DType::kF32},  {"f32", DType::kBF16, 1, 1, DType::kF32},
        {"bf16", DType::kBF16, 64, 64, DType::kBF16}};
    for (const auto& c : cases) {
        TrainerOptions options = Options(c.asked, c.passes);
        options.dtype = c.dtype;
        EXPECT_EQ(GradientTypeOf(options, c.replicas), c.expected)
            << c.asked << " " << c.passes << " x " << c.replicas;
        EXPECT_TRUE(CheckTrainer(options).ok());
    }
    TrainerOptions options = Options("bf16", 1);
    options.dtype = DType::kF32;
    EXPECT_EQ(CheckTrainer(options).error().code, ErrorCode::kUsage);
    options.dtype = DType::kF16;
    EXPECT_EQ(CheckTrainer(options).error().code, ErrorCode::kUsage);
}

// The gradients of one pass, by weight.
std::map<std::string, std::vector<float>> OnePass(const support::TrainingCase& c,
                                                  std::set<DType>& types) {
    support::TrainingRank rank(c);
    support::PassRun run(rank, c, 1);
    const support::Micro micro(1, static_cast<int32_t>(c.rows));
    EXPECT_TRUE(run.Forward(micro).ok());
    EXPECT_TRUE(run.Backward(micro).ok());
    std::map<std::string, std::vector<float>> gradients;
    for (const program::FlatBucket& unit : rank.units()) {
        types.insert(unit.gradient_dtype);
        const std::vector<float> all = ReadGradients(run.executable(), unit);
        for (const program::FlatBucket::Member& member : unit.members) {
            const auto own =
                std::span(all).subspan(static_cast<size_t>(member.begin),
                                       static_cast<size_t>(member.weight.shape.Elements(0, 0)));
            auto& gradient = gradients[member.weight.name];
            gradient.insert(gradient.end(), own.begin(), own.end());
        }
    }
    return gradients;
}

// A micro-batch counts as one addend for each weight, also where the loss adds to the gradient of
// the output matrix piece by piece: one rounding to BF16 has an error of 2^-9 at most.
TEST_F(GradType, EachWeightIsRoundedOnceAPass) {
    for (const bool tied : {false, true}) {
        support::TrainingCase c{
            .tied = tied, .dtype = DType::kBF16, .gradients = DType::kBF16, .rows = 33 * 32};
        std::set<DType> types;
        const auto narrow = OnePass(c, types);
        EXPECT_EQ(types.size(), 2u);
        c.gradients = DType::kF32;
        const auto wide = OnePass(c, types);
        ASSERT_EQ(narrow.size(), wide.size());
        for (const auto& [name, exact] : wide) {
            const double error = Error(narrow.at(name), {exact.begin(), exact.end()});
            EXPECT_TRUE(error <= 3e-3) << name << ": " << error;
        }
    }
}

// Ranks sum the gradients of a tied matrix over its two stages: they have one type.
TEST_F(GradType, BothStagesOfATiedMatrixHaveOneType) {
    for (const int64_t rows : {32, 64}) {
        std::set<DType> types;
        for (const int stage : {0, 1}) {
            const support::TrainingRank rank({.tied = true,
                                              .dtype = DType::kBF16,
                                              .gradients = DType::kBF16,
                                              .zero = {.alone = {"token_embd.weight"}},
                                              .pp = 2,
                                              .shard = stage,
                                              .rows = rows});
            for (const program::FlatBucket& unit : rank.units()) {
                if (unit.alone) types.insert(unit.gradient_dtype);
            }
        }
        EXPECT_EQ(types, std::set<DType>{rows > 32 ? DType::kF32 : DType::kBF16});
    }
}

// The memory plan equals the memory used: two more bytes per weight of a matrix.
TEST_F(GradType, TheMemoryPlanKnows) {
    auto cluster = cluster::Cluster::Launch({}, "");
    const auto weights = [&](const char* grad_dtype) {
        auto trainer = Trainer::Make(Options(grad_dtype, 1), **cluster);
        EXPECT_TRUE(trainer.ok());
        return (*trainer)->memory().weight_bytes;
    };
    const auto source = model_files::OpenModel(model_);
    ASSERT_TRUE(source.ok());
    uint64_t elements = 0;
    for (const model_files::TensorInfo& tensor : (*source)->tensors()) {
        if (tensor.dim_count > 1) elements += static_cast<uint64_t>(tensor.rows * tensor.cols);
    }
    const uint64_t more = weights("f32") - weights("bf16");
    EXPECT_GE(more, 2 * elements);
    EXPECT_LE(more, 2 * elements + 4096);  // (units are rounded up)
}

}  // namespace
}  // namespace weft::train
