// ExpandLoss: pieces of rows, on one rank or sharded over several, give the loss and its gradients.
#include "program/loss.h"

#include <gtest/gtest.h>
#include <time.h>

#include <numeric>
#include <thread>

#include "backend/device.h"
#include "net/local.h"
#include "program/arena.h"
#include "program/model_chunk.h"
#include "support/interpreter.h"
#include "support/ranks.h"
#include "support/tiny_model.h"
#include "support/training.h"
#include "tensor/quant.h"

namespace weft::program {
namespace {

constexpr int64_t kLossTokens = 110, kLossCols = 16, kLossVocab = 51;
constexpr float kLossGradient = 0.37f;

// Exact in float32, so products with them have one rounding.
std::vector<float> LossWeights(int64_t rows) {
    std::vector<float> weights;
    for (int64_t i = 0; i < rows; ++i) weights.push_back(0.25f * static_cast<float>(i % 7 - 2));
    return weights;
}

struct LossCase {
    int64_t most = 100, rows = 100;  // of the Program, of the step
    float scale = 1, cap = 0;
    std::vector<int64_t> parts = {kLossVocab};  // of the tensor ranks
    bool frozen = false;                        // the weight has no gradient
    int64_t logits_bytes = 1;                   // pieces of 32 rows
    bool reference = false;
    int threads = 2;
    int64_t cols = kLossCols;
    DType weight = DType::kF32, compute = DType::kF32;
    bool biased = false;
    float smoothing = 0, z_loss = 0;

    int64_t vocab() const { return std::accumulate(parts.begin(), parts.end(), int64_t{0}); }

    int64_t FirstRow(size_t rank) const {
        return std::accumulate(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(rank),
                               int64_t{0});
    }
};

// x: rows of a table, each of another token, so that the table's gradient is the gradient of x.
Program LossForward(const LossCase& c, size_t rank) {
    Program p;
    const auto add = [&](const char* name, DType dtype, Shape shape, Storage storage) {
        return p.AddValue({name, dtype, shape, storage});
    };
    const ValueId tokens = add("tokens", DType::kI32, {kTokens}, Storage::kInput);
    const ValueId rows = add("output_rows", DType::kI32, {kOutputs}, Storage::kInput);
    const ValueId targets = add("targets", DType::kI32, {kOutputs}, Storage::kInput);
    const ValueId table = add("table", DType::kF32, {kLossTokens, c.cols}, Storage::kWeight);
    const ValueId weight = add("weight", c.weight, {c.parts[rank], c.cols}, Storage::kWeight);
    const ValueId y = p.Emit(Embedding{}, {tokens, table}, "y", {kTokens, c.cols});
    const ValueId x = p.Emit(SelectRows{}, {y, rows}, "x", {kOutputs, c.cols});
    LinearCrossEntropy loss;
    loss.scale = c.scale;
    loss.soft_cap = c.cap;
    loss.terms.smoothing = c.smoothing;
    loss.terms.z_loss = c.z_loss;
    if (c.parts.size() > 1) {
        loss.cut = Cut::kRows;
        loss.first_row = c.FirstRow(rank);
        loss.parts = c.parts;
    }
    std::vector<ValueId> inputs = {x, weight, targets};
    if (c.biased) {
        loss.biased = true;
        inputs.push_back(add("bias", DType::kF32, {c.parts[rank]}, Storage::kWeight));
    }
    p.Emit(loss, inputs, "loss", {kOutputs});
    return p;
}

Differentiated LossBackward(const LossCase& c, size_t rank) {
    const Program forward = LossForward(c, rank);
    DifferentiateOptions options;
    options.output = forward.Find("loss");
    options.weights = {forward.Find("table")};
    if (!c.frozen) options.weights.push_back(forward.Find("weight"));
    if (c.biased) options.weights.push_back(forward.Find("bias"));
    return Differentiate(forward, options).value();
}

// Values that are computed in a narrow type are held in it.
ExpandedLoss Expand(const LossCase& c, size_t rank) {
    Differentiated differentiated = LossBackward(c, rank);
    for (Value& value : differentiated.program.values) {
        if (value.storage == Storage::kActivation && value.shape.rank == 2) value.dtype = c.compute;
    }
    return ExpandLoss(std::move(differentiated), {c.most, c.logits_bytes});
}

ValueId GradientOf(const Differentiated& differentiated, const char* name) {
    for (const auto& [weight, gradient] : differentiated.gradients) {
        if (differentiated.program.value(weight).name == name) return gradient;
    }
    return kNoValue;
}

// ---- Structure ----------------------------------------------------------------------------------

std::vector<OpKind> KindsOf(const Program& program, size_t begin, size_t end) {
    std::vector<OpKind> kinds;
    for (size_t i = begin; i < end; ++i) kinds.push_back(program.ops[i].kind());
    return kinds;
}

struct LossKinds {
    std::vector<OpKind> logits, losses, gradients;
};
LossKinds ExpectedKinds(const LossCase& c) {
    LossKinds kinds{{OpKind::kMatMul}, {OpKind::kSoftmaxStats}, {OpKind::kCrossEntropyGrad}};
    if (c.biased) kinds.logits.push_back(OpKind::kAddBias);
    if (c.scale != 1) kinds.logits.push_back(OpKind::kScale);
    if (c.cap != 0) kinds.logits.push_back(OpKind::kSoftCap);
    if (c.parts.size() > 1) kinds.losses.push_back(OpKind::kAllGather);
    kinds.losses.push_back(OpKind::kCrossEntropy);
    if (c.cap != 0) kinds.gradients.push_back(OpKind::kSoftCapGrad);
    if (c.scale != 1) kinds.gradients.push_back(OpKind::kScale);
    kinds.gradients.push_back(OpKind::kMatMulGradInput);
    if (c.biased) kinds.gradients.push_back(OpKind::kBiasGrad);
    if (!c.frozen) kinds.gradients.push_back(OpKind::kMatMulGradWeight);
    return kinds;
}

template <typename... Lists>
std::vector<OpKind> Join(const Lists&... lists) {
    std::vector<OpKind> all;
    (all.insert(all.end(), lists.begin(), lists.end()), ...);
    return all;
}

const LossCase kLossForms[] = {
    {},
    {.scale = 0.25f},
    {.cap = 3},
    {.scale = 2, .cap = 3},
    {.scale = 2, .cap = 3, .frozen = true},
    {.parts = {31, 20}},
    {.scale = 0.5f, .cap = 4, .parts = {20, 3, 28}},
    {.parts = {1, 50}, .frozen = true},
    {.biased = true},
    {.scale = 0.5f, .cap = 4, .parts = {20, 3, 28}, .frozen = true, .biased = true},
    {.smoothing = 0.1f},
    {.cap = 3, .parts = {31, 20}, .z_loss = 0.05f},
    {.parts = {20, 3, 28}, .biased = true, .smoothing = 0.3f, .z_loss = 0.01f},
};

TEST(ExpandLoss, EachPieceHasItsOpsInOrder) {
    for (LossCase c : kLossForms) {
        for (const int64_t most : {1, 32, 33, 64, 70, 96, 97}) {
            c.most = most;
            const size_t pieces = static_cast<size_t>(most + 31) / 32;
            const ExpandedLoss loss = Expand(c, 0);
            const Program& program = loss.differentiated.program;
            ASSERT_TRUE(CheckShapes(program).ok());
            const LossKinds kinds = ExpectedKinds(c);
            std::vector<OpKind> evaluate, predict = kinds.logits, backward;
            for (size_t i = 0; i < pieces; ++i) {
                evaluate = Join(evaluate, kinds.logits, kinds.losses);
                backward = Join(backward, kinds.logits, kinds.losses, kinds.gradients);
            }
            if (c.parts.size() > 1) predict.push_back(OpKind::kAllGather);
            const size_t turn = loss.differentiated.backward_begin;
            EXPECT_EQ(KindsOf(program, 0, loss.evaluate_begin),
                      (std::vector{OpKind::kEmbedding, OpKind::kSelectRows}));
            EXPECT_EQ(KindsOf(program, loss.evaluate_begin, loss.predict_begin), evaluate);
            EXPECT_EQ(KindsOf(program, loss.predict_begin, turn), predict);
            const std::vector<OpKind> got = KindsOf(program, turn, program.ops.size());
            ASSERT_GT(got.size(), backward.size());
            EXPECT_TRUE(std::equal(backward.begin(), backward.end(), got.begin()));
        }
    }
}

// Views of x, targets and what is [R], each of a piece of 32 rows, one after another.
TEST(ExpandLoss, PiecesAreViewsOfAllRows) {
    for (const LossCase& c : kLossForms) {
        const ExpandedLoss loss = Expand(c, c.parts.size() - 1);
        const Program& program = loss.differentiated.program;
        std::map<ValueId, std::vector<int64_t>> begins;
        for (const Value& value : program.values) {
            if (value.storage != Storage::kView) continue;
            const Value& base = program.value(value.base);
            EXPECT_EQ(base.shape[0], kOutputs);
            EXPECT_EQ(value.dtype, base.dtype);
            EXPECT_EQ(value.shape.rank, base.shape.rank);
            const RowPiece piece = PieceOf(value.shape[0]);
            EXPECT_EQ(value.base_begin, piece.begin * base.shape.Elements(0, 1));
            if (piece.rows == 32) begins[value.base].push_back(piece.begin);
        }
        for (const char* name :
             {"x", "targets", "losses", "hits", "evaluated", "evaluated_hits", "d.loss"}) {
            EXPECT_EQ(begins[program.Find(name)], (std::vector<int64_t>{0, 32, 64, 96})) << name;
        }
        EXPECT_EQ(begins.size(), 8u);  // and the gradient of x
    }
}

TEST(ExpandLoss, PiecesAreAsLargeAsTheirLogitsMayBe) {
    for (const auto& [bytes, rows] : {std::pair{int64_t{1}, 32},
                                      {kLossVocab * 4 * 63, 32},
                                      {kLossVocab * 4 * 64, 64},
                                      {int64_t{1} << 40, 100}}) {
        LossCase c;
        c.logits_bytes = bytes;
        const ExpandedLoss loss = Expand(c, 0);
        const Op& first = loss.differentiated.program.ops[loss.evaluate_begin];
        const Value& logits = loss.differentiated.program.value(first.outputs[0]);
        EXPECT_EQ(PieceOf(logits.shape[0]).rows, rows);
    }
}

// Another stage's part of a model: nothing to expand.
TEST(ExpandLoss, WithoutALossNothingIsAdded) {
    Program p = LossForward({}, 0);
    p.ops.pop_back();
    const ValueId x = p.Find("x");
    const Differentiated before = Differentiate(p, {x, {p.Find("table")}}).value();
    const ExpandedLoss loss = ExpandLoss(before, {100, 1});
    const size_t turn = loss.differentiated.backward_begin;
    EXPECT_EQ(loss.evaluate_begin, turn);
    EXPECT_EQ(loss.predict_begin, turn);
    EXPECT_EQ(turn, before.backward_begin);
    EXPECT_EQ(Print(loss.differentiated.program), Print(before.program));
    EXPECT_EQ(loss.values.losses, kNoValue);
    EXPECT_EQ(loss.values.evaluated, kNoValue);
    EXPECT_EQ(loss.values.predicted, kNoValue);
}

// Seconds of this thread in which a loss of so many pieces is expanded and planned.
double PlanningSeconds(int64_t pieces) {
    LossCase c;
    c.most = 32 * pieces;
    const auto now = [] {
        timespec time{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    ExpandedLoss loss = Expand(c, 0);
    ChunkedProgram list;
    AppendChunk(list, std::move(loss), kNoValue);
    (void)PlanTrainingArena(list, c.most, c.most, {});
    return now() - begin;
}

// A micro-batch of a million rows and a vocabulary of 262,144 makes 16,384 pieces. If each piece
// were compared with each, eight times as many would take 64 times as long.
TEST(ExpandLoss, PlanningTakesTimeInProportionToThePieces) {
    const double some = PlanningSeconds(500), many = PlanningSeconds(4000);
    EXPECT_LT(many, 24 * some);
}

// ---- Numbers ------------------------------------------------------------------------------------

std::vector<float> LossFloats(const char* name, int64_t first, int64_t count) {
    std::vector<float> floats;
    for (int64_t i = first; i < first + count; ++i) {
        floats.push_back(static_cast<float>(support::Formula(name, static_cast<uint32_t>(i))));
    }
    return floats;
}

struct LossInputs {
    LossInputs(int64_t count, int64_t vocab) {
        for (int32_t i = 0; i < kLossTokens; ++i) tokens.push_back((i * 7 + 3) % kLossTokens);
        for (int32_t i = 0; i < count; ++i) {
            rows.push_back(i + i / 11);
            // Some rows have no loss.
            const auto target = static_cast<int32_t>(int64_t{i} * 4999 * 29 % vocab);
            targets.push_back(i % 13 == 5 ? -1 : target);
        }
    }
    std::vector<int32_t> tokens, rows, targets;
};

// Rows of a weight of kQ8_0.
std::vector<std::byte> BlockRows(const LossCase& c, int64_t first, int64_t count) {
    const auto floats = LossFloats("blocks", first * c.cols, count * c.cols);
    std::vector<std::byte> rows(static_cast<size_t>(RowBytes(c.weight, count * c.cols)));
    QuantizeRow(c.weight, floats, rows);
    return rows;
}

struct LossNumbers {
    std::vector<float> losses, hits, evaluated, evaluated_hits, predicted;
    std::vector<float> table, weight, bias;  // gradients
};

// One rank's passes.
LossNumbers RunLoss(const LossCase& c, size_t rank, coll::Comm* tensor) {
    ExpandedLoss loss = Expand(c, rank);
    const ValueId table = loss.differentiated.program.Find("table");
    const ValueId weight = loss.differentiated.program.Find("weight");
    const ValueId dtable = GradientOf(loss.differentiated, "table");
    const ValueId dweight = GradientOf(loss.differentiated, "weight");
    const ValueId bias = loss.differentiated.program.Find("bias");
    const ValueId dbias = GradientOf(loss.differentiated, "bias");
    ChunkedProgram list;
    AppendChunk(list, std::move(loss), kNoValue);
    const ModelChunk chunk = list.chunks[0];
    backend::CompileOptions compile;
    compile.max_tokens = kLossTokens;
    compile.max_outputs = c.most;
    compile.compute = c.compute;
    const auto device = backend::OpenDevice("cpu", {c.threads, {}, true, c.reference}).value();
    const auto executable = device->Compile(std::move(list), compile).value();
    const auto write = [&](ValueId id, const std::vector<float>& floats) {
        EXPECT_TRUE(executable->Write(id, 0, std::as_bytes(std::span(floats))).ok());
    };
    write(table, LossFloats("table", 0, kLossTokens * c.cols));
    if (c.biased) write(bias, LossFloats("bias", c.FirstRow(rank), c.parts[rank]));
    if (c.weight == DType::kF32) {
        write(weight, LossFloats("weight", c.FirstRow(rank) * c.cols, c.parts[rank] * c.cols));
    } else {
        const auto rows = [&](int64_t first, int64_t count, std::span<std::byte> out) -> Status {
            std::ranges::copy(BlockRows(c, first, count), out.begin());
            return {};
        };
        EXPECT_TRUE(executable->LoadWeight(weight, rows).ok());
    }
    EXPECT_TRUE(executable->ZeroFill(Pool::kGradient).ok());
    const LossInputs inputs(c.rows, c.vocab());
    backend::Step step;
    step.tokens = step.positions = inputs.tokens;
    step.output_rows = inputs.rows;
    step.targets = inputs.targets;
    step.loss_gradient = kLossGradient;
    const std::vector<float> weights = LossWeights(c.rows);
    step.row_weights = weights;
    const auto run = [&](const OpRange& ops) {
        const Status status = executable->Run(ops, step, {.tensor = tensor});
        EXPECT_TRUE(status.ok()) << status.error().message;
        step.again = true;
    };
    const auto read = [&](ValueId id, int64_t count) {
        std::vector<float> floats(id == kNoValue ? 0 : static_cast<size_t>(count));
        EXPECT_TRUE(floats.empty() || executable->ReadFloats(id, 0, floats).ok());
        return floats;
    };
    LossNumbers got;
    run(chunk.forward());
    run(chunk.evaluate());
    got.evaluated = read(chunk.loss.evaluated, c.rows);
    got.evaluated_hits = read(chunk.loss.evaluated_hits, c.rows);
    run(chunk.predict());
    got.predicted = read(chunk.loss.predicted, c.rows > 0 ? c.vocab() : 0);
    run(chunk.backward());
    got.losses = read(chunk.loss.losses, c.rows);
    got.hits = read(chunk.loss.hits, c.rows);
    got.table = read(dtable, kLossTokens * c.cols);
    got.weight = read(dweight, c.parts[rank] * c.cols);
    got.bias = read(dbias, c.parts[rank]);
    return got;
}

// Runs all ranks, each on a thread. Values that all ranks have must have the same bits; `weight` is
// joined from the ranks' parts.
LossNumbers RunLossOnRanks(const LossCase& c) {
    if (c.parts.size() == 1) return RunLoss(c, 0, nullptr);
    constexpr size_t kWindow = size_t{1} << 20;
    const int ranks = static_cast<int>(c.parts.size());
    auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, kWindow).value();
    std::vector<LossNumbers> all(c.parts.size());
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        std::vector<int> group(c.parts.size());
        std::iota(group.begin(), group.end(), 0);
        const auto comm =
            coll::Comm::Make(fabric, group, {0, kWindow, 0, net::kFlags}, 10'000).value();
        const auto rank = static_cast<size_t>(fabric.rank);
        all[rank] = RunLoss(c, rank, comm.get());
    });
    for (size_t rank = 1; rank < all.size(); ++rank) {
        EXPECT_EQ(all[rank].losses, all[0].losses);
        EXPECT_EQ(all[rank].evaluated, all[0].evaluated);
        EXPECT_EQ(all[rank].hits, all[0].hits);
        EXPECT_EQ(all[rank].predicted, all[0].predicted);
        EXPECT_EQ(all[rank].table, all[0].table);
        all[0].weight.insert(all[0].weight.end(), all[rank].weight.begin(), all[rank].weight.end());
        all[0].bias.insert(all[0].bias.end(), all[rank].bias.begin(), all[rank].bias.end());
    }
    return std::move(all[0]);
}

struct ExactLoss {
    std::vector<double> losses, evaluated, hits, predicted, table, weight, bias;
};

template <typename T>
std::vector<double> Doubles(const std::vector<T>& numbers) {
    return {numbers.begin(), numbers.end()};
}

// By the interpreter, of linear_cross_entropy as it is.
ExactLoss NaiveLoss(LossCase c) {
    c.parts = {c.vocab()};
    const Differentiated differentiated = LossBackward(c, 0);
    const Program& program = differentiated.program;
    support::World<double> world({program}, 1);
    const LossInputs inputs(c.rows, c.vocab());
    const auto at = [&](const char* name) -> std::vector<double>& {
        return world.at(0, program.Find(name));
    };
    at("tokens") = Doubles(inputs.tokens);
    at("output_rows") = Doubles(inputs.rows);
    at("targets") = Doubles(inputs.targets);
    at("table") = Doubles(LossFloats("table", 0, kLossTokens * c.cols));
    std::vector<float> floats = LossFloats("weight", 0, c.vocab() * c.cols);
    if (c.weight != DType::kF32) DequantizeRow(c.weight, BlockRows(c, 0, c.vocab()), floats);
    at("weight") = Doubles(floats);
    if (c.biased) at("bias") = Doubles(LossFloats("bias", 0, c.vocab()));
    for (const float weight : LossWeights(c.rows)) {
        world.at(0, differentiated.output_gradient).push_back(double{kLossGradient * weight});
    }
    EXPECT_EQ(world.Run(kLossTokens, c.rows, {}), "");
    ExactLoss exact;
    exact.table = world.at(0, GradientOf(differentiated, "table"));
    if (!c.frozen) exact.weight = world.at(0, GradientOf(differentiated, "weight"));
    if (c.biased) exact.bias = world.at(0, GradientOf(differentiated, "bias"));
    const support::Matrix<double> x{at("x"), c.rows}, weight{at("weight"), c.vocab()};
    std::vector<double> zeros(static_cast<size_t>(c.vocab()));
    const support::Matrix<double> bias{c.biased ? at("bias") : zeros, c.vocab()};
    LinearCrossEntropy loss;
    loss.scale = c.scale;
    loss.soft_cap = c.cap;
    for (int64_t i = 0; i < c.rows; ++i) {
        const std::vector<double> logits =
            support::naive::LogitsOf(loss, x, weight, i, &bias).logits;
        const int32_t target = inputs.targets[static_cast<size_t>(i)];
        const double log_sum = std::log(support::naive::SumOfExp(logits));
        const double chosen = target < 0 ? log_sum : logits[static_cast<size_t>(target)];
        const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
        const LossTerms terms{c.smoothing, c.z_loss, c.vocab()};
        const double more = support::naive::MoreTerms(terms, log_sum, chosen, sum);
        exact.evaluated.push_back(log_sum - chosen);
        exact.losses.push_back(target < 0 ? 0 : log_sum - chosen + more);
        exact.hits.push_back(chosen == *std::ranges::max_element(logits) ? 1 : 0);
        if (i == 0) exact.predicted = logits;
    }
    return exact;
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& exact, const char* what,
                 double tolerance = 4e-6) {
    ASSERT_EQ(got.size(), exact.size()) << what;
    if (exact.empty()) return;
    const double error = support::RelativeError(Doubles(got), exact);
    EXPECT_TRUE(error <= tolerance) << what << ": " << error;
}

// The same numbers in pieces as in one; a row's own are the same bits.
void CheckLoss(const LossCase& c) {
    SCOPED_TRACE(testing::Message() << c.rows << " of " << c.most << " rows, scale " << c.scale
                                    << ", cap " << c.cap << ", " << c.parts.size() << " ranks");
    LossCase one = c;
    one.logits_bytes = int64_t{1} << 40;
    const LossNumbers got = RunLossOnRanks(c), whole = RunLossOnRanks(one);
    EXPECT_EQ(got.losses, whole.losses);
    EXPECT_EQ(got.evaluated, whole.evaluated);
    EXPECT_EQ(got.evaluated_hits, got.hits);
    if (c.smoothing == 0 && c.z_loss == 0) {
        EXPECT_EQ(got.evaluated, got.losses);
    }
    EXPECT_EQ(got.predicted, whole.predicted);
    EXPECT_EQ(got.table, whole.table);
    const ExactLoss exact = NaiveLoss(c);
    ExpectClose(got.losses, exact.losses, "losses");
    ExpectClose(got.evaluated, exact.evaluated, "evaluated");
    EXPECT_EQ(Doubles(got.hits), exact.hits);
    ExpectClose(got.predicted, exact.predicted, "predicted");
    ExpectClose(got.table, exact.table, "gradient of x");
    ExpectClose(got.weight, exact.weight, "gradient of the weight");
    ExpectClose(got.bias, exact.bias, "gradient of the bias");
    ExpectClose(whole.weight, exact.weight, "gradient of the weight in one piece");
}

TEST(ExpandLoss, AnyNumberOfRowsGivesTheNaiveNumbers) {
    for (LossCase c : {LossCase{}, LossCase{.scale = 2, .cap = 3}}) {
        for (const int64_t rows : {1, 31, 32, 33, 64, 70, 100}) {
            c.rows = rows;
            CheckLoss(c);
        }
    }
}

TEST(ExpandLoss, AnyPieceOfAnyProgramGivesTheNaiveNumbers) {
    for (const auto& [most, rows] :
         {std::pair{1, 1}, {20, 20}, {20, 3}, {32, 32}, {33, 33}, {70, 70}, {96, 96}}) {
        LossCase c;
        c.most = most;
        c.rows = rows;
        CheckLoss(c);
    }
}

TEST(ExpandLoss, EveryFormGivesTheNaiveNumbers) {
    for (LossCase c : kLossForms) {
        for (const bool reference : {false, true}) {
            c.reference = reference;
            c.threads = reference ? 1 : 3;
            c.rows = 83;
            CheckLoss(c);
            c.rows = 1;
            CheckLoss(c);
        }
    }
}

// Weights of a block type that are too large to be widened at once. Narrow operands have 8 bits.
TEST(ExpandLoss, LargeBlockWeightsAreWidenedSomeRowsAtATime) {
    for (const auto& [compute, vocab, rows, tolerance] :
         {std::tuple{DType::kF32, 131'100, 3, 2e-5}, {DType::kBF16, 262'200, 3, 0x1p-7}}) {
        LossCase c;
        c.most = 40;
        c.rows = rows;
        c.cols = 64;
        c.parts = {vocab};
        c.frozen = true;
        c.weight = DType::kQ8_0;
        c.compute = compute;
        const LossNumbers got = RunLoss(c, 0, nullptr);
        const ExactLoss exact = NaiveLoss(c);
        ExpectClose(got.losses, exact.losses, "losses", tolerance);
        ExpectClose(got.evaluated, exact.losses, "evaluated", tolerance);
        ExpectClose(got.predicted, exact.predicted, "predicted", tolerance);
        ExpectClose(got.table, exact.table, "gradient of x", tolerance);
    }
}

TEST(ExpandLoss, NoRowsHaveNoGradient) {
    for (LossCase c : {LossCase{}, LossCase{.parts = {31, 20}}}) {
        c.rows = 0;
        const LossNumbers got = RunLossOnRanks(c);
        EXPECT_EQ(got.table, std::vector<float>(kLossTokens * kLossCols));
        EXPECT_EQ(got.weight, std::vector<float>(kLossVocab * kLossCols));
    }
}

}  // namespace
}  // namespace weft::program
