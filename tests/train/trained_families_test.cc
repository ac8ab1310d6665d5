// Every tiny model of every architecture in training, on the processor in float32: its loss is that
// of transformers' logits, its gradients are the slopes of the loss, and tensor ranks and stages
// have the gradients of one rank. So does a GPU. The lists of models that training refuses may only
// shrink.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "coll/comm.h"
#include "support/family_model.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "train/graph.h"
#include "train/pieces.h"
#include "train/saver.h"
#include "train/trainer.h"
#include "vulkan/usable_device.h"

namespace weft::train {
namespace {

using backend::UsableName;  // for WEFT_NEEDS_VULKAN

using Whole = std::map<std::string, std::vector<double>>;  // by tensor

// The models that weft train refuses in sequences as long as the golden ones, and a part of the
// error.
const std::map<std::string, std::string> kRefusedModels = {
    {"deepseekV4", "have no gradient yet"},
    {"deepseekV32Top", "--seq-len 5"},
    {"glmDsaTop", "--seq-len 5"},
    {"minimaxM3Top", "--seq-len 6"},
    {"mistralLarge4", "--seq-len 4"},
    {"phimoe", "sparse mixing"},
    {"mamba", "selective state spaces"},
    {"falconMamba", "selective state spaces"},
    {"gemma3n", "no gradient yet"},
    {"longcatFlash", "no gradient yet"},
    {"glm5Next", "no gradient yet"},
    {"glm5NextTop", "no gradient yet"},
    {"hyV4", "no gradient yet"},
    {"hyV4Top", "no gradient yet"},
    {"jamba", "selective state spaces"},
    {"jambaDense", "selective state spaces"},
};
// Models that are refused only with tensor ranks.
const std::map<std::string, std::string> kRefusedTensorRanks = {
    {"glm47flash", "--tp 1"},
    {"kimiK25", "--tp 1"},
    {"qwen25vl", "--tp 1"},
};
// The models of the daily suite: between them, they have every op.
constexpr std::string_view kDaily[] = {
    "llama",         "olmo2",      "gemma4", "gptOss", "gemma4Moe",    "deepseekV2",
    "minimaxM3",     "kimiLinear", "lfm2",   "llama4", "qwen3nextMoe", "nemotronHMoe",
    "graniteHybrid", "cohere2",    "mimo2",  "laguna", "step35"};

// Of these, the models with kernels of their own on GPUs: lavapipe takes seconds for each kernel.
constexpr std::string_view kDailyOnGpu[] = {"gptOss",       "deepseekV2",    "cohere2",  "llama4",
                                            "qwen3nextMoe", "graniteHybrid", "gemma4Moe"};

// The tensors without weight decay: biases, norms, and numbers of heads, channels or layers.
bool IsVectorByName(const std::string& name) {
    constexpr std::string_view kEnds[] = {
        ".bias", ".scale", ".ssm_a", ".ssm_d", "attn_sinks.weight", "layer_output_scale.weight"};
    return name.find("norm") != name.npos ||
           std::ranges::any_of(kEnds, [&](auto end) { return name.ends_with(end); });
}

// Rows of sequences of these lengths; each row but the last of all predicts the next token.
struct Rows {
    Rows(const std::vector<int32_t>& all, const std::vector<int32_t>& lengths) : tokens(all) {
        int32_t begin = 0;
        for (const int32_t length : lengths) {
            sequences.push_back({begin, length, 0, {}});
            for (int32_t i = 0; i < length; ++i) positions.push_back(i);
            begin += length;
        }
        for (size_t row = 0; row + 1 < tokens.size(); ++row) {
            outputs.push_back(static_cast<int32_t>(row));
            targets.push_back(tokens[row + 1]);
        }
    }
    backend::Step Step() const {
        backend::Step step;
        step.number = 1;
        step.tokens = tokens;
        step.positions = positions;
        step.output_rows = outputs;
        step.targets = targets;
        step.sequences = sequences;
        step.loss_gradient = 1;
        return step;
    }
    std::vector<int32_t> tokens, positions, outputs, targets;
    std::vector<backend::StepSequence> sequences;
};

// A rank's training Program with the model's weights.
class Rank {
  public:
    static Result<std::unique_ptr<Rank>> Make(const model::Hyper& hyper,
                                              const model_files::ModelSource& source,
                                              const model::Shard& shard, int64_t rows,
                                              DType dtype = DType::kF32,
                                              std::shared_ptr<backend::Device> device = nullptr) {
        auto rank = std::make_unique<Rank>();
        GraphOptions options;
        options.rows = options.sequence = rows;
        options.dtype = options.gradients = dtype;
        rank->device_ = device != nullptr
                            ? std::move(device)
                            : backend::OpenDevice("cpu", {1, {}, true, false}).value();
        options.target = rank->device_->info().target;
        WEFT_ASSIGN(TrainingGraph graph, BuildTrainingGraph(hyper, {&shard, 1}, source, options));
        rank->chunk_ = graph.program.chunks[0];
        rank->units_ = std::move(graph.units);
        backend::CompileOptions compile;
        compile.max_tokens = compile.max_outputs = rows;
        compile.compute = dtype;
        WEFT_ASSIGN(rank->executable_, rank->device_->Compile(std::move(graph.program), compile));
        rank->cluster_ = cluster::Cluster::Launch({}, "").value();
        WEFT_TRY(rank->state_.Agree(rank->units_, *rank->cluster_, 0));
        WEFT_TRY(rank->state_.Load(*rank->executable_, source, *rank->cluster_));
        for (const program::FlatBucket& unit : rank->units_) {
            if (dtype != DType::kF32) break;
            rank->weights_.push_back(rank->Floats(unit.weights, unit.elements));
        }
        return rank;
    }

    // A checkpoint has each weight as an array, of which a rank writes a region.
    void ExpectPieces(const model_files::ModelSource& source) const {
        for (const OwnPart& part : state_.parts()) {
            VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
                const model_files::TensorInfo& tensor = *source.FindTensor(piece.tensor());
                EXPECT_EQ(piece.is_matrix(), !IsVectorByName(tensor.name)) << tensor.name;
                EXPECT_TRUE(IsInside(piece.region, ArrayOf(tensor, "weight"))) << tensor.name;
            });
        }
    }

    Status Forward(const Rows& rows, const backend::Communicators& groups = {}) {
        return executable_->Run(chunk_.forward(), rows.Step(), groups);
    }
    Status Backward(const Rows& rows, const backend::Communicators& groups = {}) {
        WEFT_TRY(executable_->ZeroFill(program::Pool::kGradient));
        backend::Step step = rows.Step();
        step.again = true;
        return executable_->Run(chunk_.backward(), step, groups);
    }
    double Loss(const Rows& rows) {
        const program::OpRange evaluation{chunk_.begin, chunk_.predict_begin};
        const Status status = executable_->Run(evaluation, rows.Step(), {});
        EXPECT_TRUE(status.ok()) << status.error().message;
        const auto losses = Floats(chunk_.loss.evaluated, std::ssize(rows.outputs));
        return std::accumulate(losses.begin(), losses.end(), 0.0);
    }
    // Sets the rank's elements of its tensors' gradients.
    void ReadGradients(const model_files::ModelSource& source, Whole& whole) const {
        for (const program::FlatBucket& unit : units_) {
            const std::vector<float> all = Floats(unit.gradients, unit.elements);
            ForElements(source, unit, [&](const std::string& tensor, size_t at, size_t mine) {
                std::vector<double>& to = whole[tensor];
                const model_files::TensorInfo* info = source.FindTensor(tensor);
                to.resize(static_cast<size_t>(info->rows * info->cols), NAN);
                const double value = all[mine];
                EXPECT_TRUE(std::isnan(to[at]) || std::abs(to[at] - value) <= 1e-4) << tensor;
                to[at] = value;
            });
        }
    }
    // Weights moved by `step` times `direction`, in one tensor.
    void Move(const model_files::ModelSource& source, const std::string& tensor,
              const std::vector<double>& direction, double step) {
        for (size_t i = 0; i < units_.size(); ++i) {
            std::vector<float> moved = weights_[i];
            bool any = false;
            ForElements(source, units_[i], [&](const std::string& of, size_t at, size_t mine) {
                if (of != tensor) return;
                moved[mine] += static_cast<float>(step * direction[at]);
                any = true;
            });
            if (!any) continue;
            const auto bytes = std::as_bytes(std::span(moved));
            EXPECT_TRUE(executable_->Write(units_[i].weights, 0, bytes).ok());
        }
    }
    double SizeOf(const model_files::ModelSource& source, const std::string& tensor) const {
        double squares = 0;
        for (size_t i = 0; i < units_.size(); ++i) {
            ForElements(source, units_[i], [&](const std::string& of, size_t, size_t mine) {
                if (of == tensor) squares += std::pow(double{weights_[i][mine]}, 2);
            });
        }
        return std::sqrt(squares);
    }

  private:
    std::vector<float> Floats(program::ValueId id, int64_t count) const {
        std::vector<float> floats(static_cast<size_t>(count));
        EXPECT_TRUE(executable_->ReadFloats(id, 0, floats).ok());
        return floats;
    }
    // visit(tensor, index in the tensor, index in the unit)
    template <typename Visit>
    static void ForElements(const model_files::ModelSource& source, const program::FlatBucket& unit,
                            const Visit& visit) {
        for (const program::FlatBucket::Member& member : unit.members) {
            const Holding h = HoldingOf(member.weight);
            const bool vector = member.weight.shape.rank == 1;
            const int64_t cols = vector ? 1 : source.FindTensor(h.tensor)->cols;
            for (int64_t i = 0; i < h.rows * h.cols; ++i) {
                const int64_t row = h.row + i / h.cols, col = h.col + i % h.cols;
                visit(h.tensor, static_cast<size_t>(row * cols + col),
                      static_cast<size_t>(member.begin + i));
            }
        }
    }

    std::shared_ptr<backend::Device> device_;
    std::unique_ptr<backend::Executable> executable_;
    std::unique_ptr<cluster::Cluster> cluster_;
    TrainState state_;
    std::vector<program::FlatBucket> units_;
    std::vector<std::vector<float>> weights_;  // of the file, by unit
    program::ModelChunk chunk_;
};

class TrainedFamilies : public testing::TestWithParam<support::FamilyCase> {
  protected:
    void SetUp() override {
        model_ = support::OpenFamily(GetParam(), dir_ / "model");
        ASSERT_FALSE(model_.logits.empty());
    }

    int64_t rows() const { return std::ssize(model_.tokens); }
    Rows OneSequence() const { return {model_.tokens, {static_cast<int32_t>(rows())}}; }
    Rows Sequences() const {
        const auto all = static_cast<int32_t>(rows());
        return {model_.tokens, {all / 3, 1, all - all / 3 - 1}};
    }

    // The sum of the losses of OneSequence() by transformers' logits.
    double GoldenLoss() const {
        const size_t vocab = model_.logits.size() / model_.tokens.size();
        double loss = 0;
        for (size_t row = 0; row + 1 < model_.tokens.size(); ++row) {
            const float* logits = model_.logits.data() + row * vocab;
            double sum = 0;
            for (size_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]});
            loss += std::log(sum) - double{logits[model_.tokens[row + 1]]};
        }
        return loss;
    }

    Result<std::vector<model::Shard>> Shards(int tp, int pp) const {
        WEFT_ASSIGN(const model::Layout layout, model::MakeLayout(tp * pp, tp, pp, {}));
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(model_.hyper, *model_.source, layout));
        return plan.shards;
    }
    Result<std::unique_ptr<Rank>> OneRank(DType dtype = DType::kF32,
                                          std::shared_ptr<backend::Device> device = nullptr) const {
        WEFT_ASSIGN(const std::vector<model::Shard> shards, Shards(1, 1));
        return Rank::Make(model_.hyper, *model_.source, shards[0], rows(), dtype,
                          std::move(device));
    }

    // The gradients of a layout, or the error of a rank.
    Result<Whole> Gradients(int tp, int pp) const {
        WEFT_ASSIGN(const std::vector<model::Shard> shards, Shards(tp, pp));
        std::vector<std::unique_ptr<Rank>> ranks;
        for (const model::Shard& shard : shards) {
            WEFT_ASSIGN(ranks.emplace_back(),
                        Rank::Make(model_.hyper, *model_.source, shard, rows()));
        }
        const Rows batch = Sequences();
        auto fabrics =
            net::MakeLocalFabrics(tp * pp, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> all(ranks.size());
            std::iota(all.begin(), all.end(), 0);
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, all, channel, 10'000).value();
            const support::OneGroup group(*comm);
            Rank& rank = *ranks[static_cast<size_t>(fabric.rank)];
            for (const Status& status :
                 {rank.Forward(batch, group.groups), rank.Backward(batch, group.groups)}) {
                EXPECT_TRUE(status.ok()) << status.error().message;
            }
        });
        Whole sums;
        for (int stage = 0; stage < pp; ++stage) {
            Whole whole;
            for (int i = 0; i < tp; ++i) {
                ranks[static_cast<size_t>(stage * tp + i)]->ReadGradients(*model_.source, whole);
            }
            for (const auto& [tensor, values] : whole) {
                std::vector<double>& sum = sums[tensor];
                sum.resize(values.size(), NAN);
                for (size_t i = 0; i < sum.size(); ++i) {  // (a stage may have some columns only)
                    if (!std::isnan(values[i])) {
                        sum[i] = values[i] + (std::isnan(sum[i]) ? 0 : sum[i]);
                    }
                }
            }
        }
        return sums;
    }

    static bool IsIn(std::span<const std::string_view> names) {
        return std::ranges::find(names, GetParam().name) != names.end();
    }
    static bool IsDaily() { return IsIn(kDaily); }

    // Whether the error is what `refused` says of this model.
    void ExpectRefused(const std::map<std::string, std::string>& refused,
                       const Error& error) const {
        const auto row = refused.find(GetParam().name);
        ASSERT_NE(row, refused.end()) << "not in the list of refused models: " << error.message;
        EXPECT_NE(error.message.find(row->second), std::string::npos) << error.message;
    }

    // Whether a rank in BF16 has about the loss of transformers, and runs a backward pass.
    void ExpectClose(const Result<std::unique_ptr<Rank>>& rank) const {
        if (!rank.ok()) return ExpectRefused(kRefusedModels, rank.error());
        const double expected = GoldenLoss(), loss = (*rank)->Loss(OneSequence());
        EXPECT_TRUE(std::abs(loss - expected) <= 0.03 * expected) << loss << ", not " << expected;
        EXPECT_TRUE((*rank)->Forward(OneSequence()).ok());
        const Status backward = (*rank)->Backward(OneSequence());
        EXPECT_TRUE(backward.ok()) << backward.error().message;
    }
    // Whether all elements of all gradients are within `bound` of the largest one of their tensor.
    void ExpectGradients(const Whole& got, const Whole& wanted, double bound,
                         const std::string& what) const {
        EXPECT_EQ(got.size(), wanted.size());
        for (const auto& [tensor, expected] : wanted) {
            ASSERT_TRUE(got.contains(tensor)) << tensor;
            double error = 0, largest = 0;
            for (size_t i = 0; i < expected.size(); ++i) {
                const double off = std::abs(got.at(tensor)[i] - expected[i]);
                error = std::isnan(off) ? INFINITY : std::max(error, off);
                largest = std::max(largest, std::abs(expected[i]));
            }
            // Without RoPE, the bias of keys adds the same to all scores of a row: its gradient is
            // only the rounding error of sums as large as those of queries.
            if (!model_.hyper.rotates && tensor.ends_with("attn_k.bias")) {
                std::string queries = tensor;
                queries.replace(queries.size() - 6, 1, "q");
                for (const double x : wanted.at(queries)) largest = std::max(largest, std::abs(x));
            }
            EXPECT_TRUE(error <= bound * largest)
                << tensor << ", " << what << ": " << error << " of " << largest;
        }
    }

    test::TempDir dir_;
    support::FamilyModel model_;
};

INSTANTIATE_TEST_SUITE_P(All, TrainedFamilies, testing::ValuesIn(support::FamilyCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(TrainedFamilies, LossIsThatOfTransformers) {
    auto rank = OneRank();
    if (!rank.ok()) return ExpectRefused(kRefusedModels, rank.error());
    EXPECT_FALSE(kRefusedModels.contains(GetParam().name)) << "drop it from the list";
    (*rank)->ExpectPieces(*model_.source);
    const double expected = GoldenLoss(), loss = (*rank)->Loss(OneSequence());
    EXPECT_TRUE(std::abs(loss - expected) <= 1e-5 * expected) << loss << ", not " << expected;
}

// BF16's operands have 8 bits: a loss is a mean over some 20 rows of products of 144 of them.
TEST_P(TrainedFamilies, LossInBf16IsClose) {
    SKIP_TO_NIGHT_UNLESS(IsDaily());
    ExpectClose(OneRank(DType::kBF16));
}

// The loss along each tensor's gradient. A sum of some 20 losses has an error of about 1e-5; a step
// is so long that the loss changes by a thousand times that, or as long as 0.3 % of the tensor.
TEST_P(TrainedFamilies, GradientsAreSlopesOfTheLoss) {
    SKIP_TO_NIGHT_UNLESS(IsDaily());
    auto made = OneRank();
    if (!made.ok()) return ExpectRefused(kRefusedModels, made.error());
    Rank& rank = **made;
    const Rows batch = Sequences();
    ASSERT_TRUE(rank.Forward(batch).ok());
    const Status backward = rank.Backward(batch);
    ASSERT_TRUE(backward.ok()) << backward.error().message;
    Whole gradients;
    rank.ReadGradients(*model_.source, gradients);
    EXPECT_GT(gradients.size(), 3u);
    const double loss = rank.Loss(batch);
    const bool experts = model_.hyper.moe.experts > 0;
    for (auto& [tensor, gradient] : gradients) {
        double squares = 0;
        for (const double x : gradient) squares += x * x;
        const double size = std::sqrt(squares);
        EXPECT_TRUE(size > 0) << tensor << " has no gradient";
        if (!(size > 0)) continue;
        for (double& x : gradient) x /= size;
        const double most = std::min(5e-3 / size, 3e-3 * rank.SizeOf(*model_.source, tensor));
        bool agrees = false;
        double slope = 0;
        // A step may change a choice of experts, where the loss jumps: then a shorter step or one
        // side agrees.
        for (const double part : {1.0, 0.125, 0.03}) {
            const double step = part * most;
            rank.Move(*model_.source, tensor, gradient, step);
            const double above = rank.Loss(batch);
            rank.Move(*model_.source, tensor, gradient, -step);
            const double below = rank.Loss(batch);
            const double sides[] = {(above - below) / 2, above - loss, loss - below};
            slope = sides[0] / step;
            agrees = std::ranges::any_of(std::span(sides, experts ? 3 : 1), [&](double change) {
                return std::abs(change / step - size) <= 0.02 * size + 2e-5 / step;
            });
            if (agrees) break;
        }
        rank.Move(*model_.source, tensor, gradient, 0);
        EXPECT_TRUE(agrees) << tensor << ": the loss's slope is " << slope << ", the gradient "
                            << size;
    }
}

TEST_P(TrainedFamilies, RanksHaveTheGradientsOfOneRank) {
    SKIP_TO_NIGHT_UNLESS(IsDaily());
    const auto one = Gradients(1, 1);
    if (!one.ok()) return ExpectRefused(kRefusedModels, one.error());
    for (const auto& [tp, pp] : {std::pair{2, 1}, {1, 2}}) {
        const auto several = Gradients(tp, pp);
        if (!several.ok()) {
            if (tp > 1) ExpectRefused(kRefusedTensorRanks, several.error());
            EXPECT_TRUE(tp > 1) << several.error().message;
            continue;
        }
        ExpectGradients(*several, *one, 2e-4, fmt::format("tp {}, pp {}", tp, pp));
    }
}

// The weights of each tensor after one update.
Whole Updated(const TrainerOptions& options, const Rows& rows) {
    Whole weights;
    const auto cluster = cluster::Cluster::Launch({}, "").value();
    auto trainer = Trainer::Make(options, *cluster);
    EXPECT_TRUE(trainer.ok()) << trainer.error().message;
    if (!trainer.ok()) return weights;
    Sequence sequence;
    sequence.tokens = rows.tokens;
    sequence.targets = rows.targets;
    sequence.targets.push_back(-1);
    sequence.begins = {0};
    sequence.used = static_cast<int32_t>(sequence.tokens.size());
    Batch batch;
    batch.global_sequences = batch.all = 1;
    batch.global_targets = rows.targets.size();
    batch.sequences = {std::move(sequence)};
    const auto report = (*trainer)->Step(batch, 0.1);
    EXPECT_TRUE(report.ok()) << report.error().message;
    const TrainState& state = (*trainer)->state();
    for (const OwnPart& part : state.parts()) {
        VisitPieces(part, Extent::kOwn, [&](const MemberPiece& piece) {
            std::vector<float> own(static_cast<size_t>(piece.region.elements()));
            EXPECT_TRUE(state.ReadWeights(part, piece.own, own).ok());
            auto& all = weights[piece.tensor()];
            all.insert(all.end(), own.begin(), own.end());
        });
    }
    for (const Array& array : (*trainer)->rule().Arrays(state.trained_tensors())) {
        const bool orthogonal = array.kind == "muon_m";
        const bool taps = array.tensor.find("conv1d") != std::string::npos ||
                          array.tensor.find("conv.conv") != std::string::npos;
        EXPECT_FALSE(orthogonal && (taps || IsVectorByName(array.tensor))) << array.tensor;
    }
    // A checkpoint has one piece for all experts, unless the tensor has two matrices of each.
    std::map<std::string, int> pieces;
    const auto saved = PiecesOf(state, (*trainer)->rule(), (*trainer)->source(), nullptr);
    for (const Piece& piece : saved) {
        const std::string& tensor = piece.array.tensor;
        const bool two = tensor.find("gate_up") != std::string::npos;
        if (!two && tensor.find("_exps.") != std::string::npos) ++pieces[piece.array.Name()];
    }
    for (const auto& [name, count] : pieces) {
        EXPECT_TRUE(count == 1 || options.update.kind == UpdateKind::kAdam8bit) << name;
    }
    return weights;
}

// One update with each optimizer, and which tensors decay.
TEST_P(TrainedFamilies, MatricesDecayWithEachOptimizer) {
    SKIP_TO_NIGHT_UNLESS(IsDaily());
    if (kRefusedModels.contains(GetParam().name)) return;
    const bool experts_with_biases = GetParam().name == "gptOss";
    const auto daily = std::ranges::find(kDaily, GetParam().name) - std::begin(kDaily);
    for (int kind = 0; kind <= static_cast<int>(UpdateKind::kMuon); ++kind) {
        if (!experts_with_biases && !test::InTurn(static_cast<size_t>(kind + daily), 4)) continue;
        TrainerOptions options;
        const std::string file = dir_ / "model/golden.gguf";
        options.model = std::filesystem::exists(file) ? file : dir_ / "model";
        options.sequence = rows();
        options.threads = 1;
        options.clip = 0;
        options.without_dropout = true;
        options.update.kind = static_cast<UpdateKind>(kind);
        if (options.update.kind == UpdateKind::kMuon) options.update.momentum = 0.95;
        options.update.weight_decay = 0;
        const Whole plain = Updated(options, OneSequence());
        options.update.weight_decay = 0.5;
        const Whole decayed = Updated(options, OneSequence());
        ASSERT_FALSE(plain.empty());
        for (const auto& [tensor, weights] : plain) {
            EXPECT_EQ(decayed.at(tensor) != weights, !IsVectorByName(tensor))
                << tensor << ", " << UpdateName(options.update.kind);
        }
    }
}

// A GPU adds in another order, and its exp is less exact.
TEST_P(TrainedFamilies, AGpuHasTheGradientsOfTheProcessor) {
    WEFT_NEEDS_VULKAN();
    SKIP_TO_NIGHT_UNLESS(IsIn(kDailyOnGpu));
    auto cpu = OneRank();
    if (!cpu.ok()) return ExpectRefused(kRefusedModels, cpu.error());
    auto gpu = OneRank(DType::kF32, backend::TheVulkan());
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    Whole gradients[2];
    const Rows batch = Sequences();
    for (size_t i = 0; i < 2; ++i) {
        Rank& rank = i == 0 ? **cpu : **gpu;
        for (const Status& status : {rank.Forward(batch), rank.Backward(batch)}) {
            ASSERT_TRUE(status.ok()) << status.error().message;
        }
        rank.ReadGradients(*model_.source, gradients[i]);
    }
    ExpectGradients(gradients[1], gradients[0], 5e-4, "GPU");
    const double expected = GoldenLoss(), loss = (*gpu)->Loss(OneSequence());
    EXPECT_TRUE(std::abs(loss - expected) <= 2e-5 * expected) << loss << ", not " << expected;
}

TEST_P(TrainedFamilies, LossInBf16IsCloseOnAGpu) {
    WEFT_NEEDS_VULKAN();
    SKIP_TO_NIGHT_UNLESS(false);
    ExpectClose(OneRank(DType::kBF16, backend::TheVulkan()));
}

}  // namespace
}  // namespace weft::train
