// Norms of any type, gradients that are sums over rows, and the embedding's gradient, on a GPU.
#include <numeric>

#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;

struct NormCase {
    int32_t rows;
    int64_t group, groups, skip;
    DType x, dy, y;
};
const NormCase kNorms[] = {
    {1, 1, 1, 0, DType::kF32, DType::kF32, DType::kF32},
    {9, 64, 3, 0, DType::kBF16, DType::kBF16, DType::kBF16},
    {70, 576, 1, 0, DType::kF32, DType::kBF16, DType::kF32},
    {33, 37, 2, 1, DType::kF16, DType::kF32, DType::kF16},
    {5, 1030, 1, 3, DType::kBF16, DType::kF32, DType::kBF16},
    {200, 4, 350, 0, DType::kBF16, DType::kBF16, DType::kF32},  // more units than workgroups
};
constexpr float kNormEps = 1e-5f;

// A norm's operands, and the float64 results.
struct NormOperands {
    NormOperands(const NormCase& of, Random& random) : c(of), cols(of.group * of.groups) {
        const int64_t count = c.rows * cols;
        x = RoundedTo(c.x, random.Normals(count, 2));
        dy = RoundedTo(c.dy, random.Normals(count));
        weight = random.Normals(c.group);
        before = random.Normals(c.group);
        for (const auto all : {&y, &dx, &dx_size}) all->resize(x.size());
        dw.assign(before.begin(), before.end());
        dw_size.resize(before.size());
        for (size_t unit = 0; unit < x.size() / static_cast<size_t>(c.group); ++unit) {
            Unit(unit * static_cast<size_t>(c.group));
        }
    }
    void Unit(size_t begin) {
        const auto group = static_cast<size_t>(c.group);
        double squares = 0, along = 0, along_size = 0;
        for (size_t i = 0; i < group; ++i) {
            const double value = x[begin + i], pull = double{dy[begin + i]} * weight[i] * value;
            squares += value * value;
            along += pull;
            along_size += std::fabs(pull);
        }
        const auto count = static_cast<double>(group);
        const double s = 1 / std::sqrt(squares / count + double{kNormEps});
        for (size_t i = 0; i < group; ++i) {
            const double value = x[begin + i], slope = double{dy[begin + i]} * weight[i];
            y[begin + i] = value * s * weight[i];
            dx[begin + i] = s * (slope - value * s * s * along / count);
            dx_size[begin + i] =
                s * (std::fabs(slope) + std::fabs(value) * s * s * along_size / count);
            dw[i] += double{dy[begin + i]} * value * s;
            dw_size[i] += std::fabs(double{dy[begin + i]} * value * s);
        }
    }
    const NormCase& c;
    int64_t cols;
    std::vector<float> x, dy, weight, before;
    Doubles y, dx, dx_size, dw, dw_size;  // _size: sums of magnitudes
};

// A sum of n products is off by n + 1 roundings of the sum of their magnitudes; s by half of the
// roundings of its sum and a few more.
TEST(VulkanTrainGrads, Norms) {
    WEFT_VULKAN(device);
    Random random(11);
    for (const NormCase& c : kNorms) {
        const NormOperands norm(c, random);
        const std::string text = fmt::format("{} rows of {} x {}, skip {}, {}", c.rows, c.groups,
                                             c.group, c.skip, NameOf(c.x));
        TrainEmitter e(device, TrainShape(c.rows), c.skip);
        const program::Shape shape = {kTokens, norm.cols};
        const ValueId x = e.Place(shape, c.x, norm.x), dy = e.Place(shape, c.dy, norm.dy);
        const ValueId weight = e.Place({c.group}, DType::kF32, norm.weight);
        const ValueId y = e.Place(shape, c.y), dx = e.Place(shape, c.y);
        EXPECT_DONE(e.Do(program::RmsNorm{kNormEps, c.group}, {x, weight}, {y}));
        const double part = (static_cast<double>(c.group) + 20) * kUlp;
        ExpectNear(
            e.Read(y), norm.y, c.y, [&](size_t i) { return part * std::fabs(norm.y[i]); },
            "rms_norm, " + text);
        EXPECT_DONE(e.Do(program::RmsNormGradInput{kNormEps, c.group}, {dy, x, weight}, {dx}));
        ExpectNear(
            e.Read(dx), norm.dx, c.y, [&](size_t i) { return 3 * part * norm.dx_size[i]; },
            "rms_norm_grad_input, " + text);
        // After the gradient of the input, which saves the inverses, and without it.
        const auto rows = static_cast<double>(c.rows * c.groups);
        std::vector<float> first;
        for (const bool alone : {false, true}) {
            if (alone) e.ForgetDerived();
            const ValueId dw = e.Place({c.group}, DType::kF32, norm.before);
            EXPECT_DONE(e.Do(program::RmsNormGradWeight{kNormEps, c.group}, {dy, x, dw}, {dw}));
            const auto got = e.Read(dw);
            ExpectNear(
                got, norm.dw, DType::kF32,
                [&](size_t i) {
                    return (part + (rows + 4) * kUlp) *
                           (norm.dw_size[i] + std::fabs(double{norm.before[i]}));
                },
                "rms_norm_grad_weight, " + text);
            EXPECT_TRUE(!alone || got == first) << text;  // and the same bits
            first = got;
        }
        // In place, over dy or x: the saved statistics of x are then invalid.
        EXPECT_DONE(e.Do(program::RmsNormGradInput{kNormEps, c.group}, {dy, x, weight},
                         {c.dy == c.y ? dy : dx}));
    }
}

TEST(VulkanTrainGrads, NormsInPlaceDropTheSavedInverse) {
    WEFT_VULKAN(device);
    Random random(12);
    const NormCase c = {7, 40, 1, 0, DType::kF32, DType::kF32, DType::kF32};
    const NormOperands norm(c, random);
    TrainEmitter e(device, TrainShape(c.rows));
    const program::Shape shape = {kTokens, norm.cols};
    const ValueId x = e.Place(shape, c.x, norm.x), dy = e.Place(shape, c.dy, norm.dy);
    const ValueId weight = e.Place({c.group}, c.x, norm.weight);
    EXPECT_DONE(e.Do(program::RmsNormGradInput{kNormEps, c.group}, {dy, x, weight}, {x}));
    ExpectNear(
        e.Read(x), norm.dx, DType::kF32, [&](size_t i) { return 200 * kUlp * norm.dx_size[i]; },
        "in place of x");
    const ValueId dw = e.Place({c.group}, c.x, norm.before);
    EXPECT_DONE(e.Do(program::RmsNormGradWeight{kNormEps, c.group}, {dy, x, dw}, {dw}));
    // x is now the gradient.
    NormOperands again(c, random);
    again.x = e.Read(x);
    again.dy = norm.dy;
    again.dw.assign(norm.before.begin(), norm.before.end());
    std::ranges::fill(again.dw_size, 0.0);
    for (size_t at = 0; at < again.x.size(); at += 40) again.Unit(at);
    ExpectNear(
        e.Read(dw), again.dw, DType::kF32,
        [&](size_t i) { return 200 * kUlp * (again.dw_size[i] + std::fabs(norm.before[i])); },
        "weights of another x");
}

TEST(VulkanTrainGrads, BiasesAreColumnSums) {
    WEFT_VULKAN(device);
    Random random(13);
    struct Sizes {
        int32_t rows;
        int64_t cols, skip;
        DType dtype;
    };
    for (const Sizes& s : {Sizes{1, 1, 0, DType::kF32}, Sizes{64, 96, 0, DType::kBF16},
                           Sizes{65, 1027, 1, DType::kF16}, Sizes{513, 20, 0, DType::kBF16},
                           Sizes{20000, 5, 0, DType::kF32}}) {
        TrainEmitter e(device, TrainShape(s.rows), s.skip);
        const auto dy = RoundedTo(s.dtype, random.Normals(s.rows * s.cols));
        const auto before = random.Normals(s.cols);
        Doubles expected(before.begin(), before.end()), size(before.size());
        for (size_t i = 0; i < dy.size(); ++i) {
            expected[i % before.size()] += double{dy[i]};
            size[i % before.size()] += std::fabs(double{dy[i]});
        }
        const ValueId in = e.Place({kTokens, s.cols}, s.dtype, dy);
        std::vector<float> first;
        for (int time = 0; time < 2; ++time) {
            const ValueId db = e.Place({s.cols}, DType::kF32, before);
            EXPECT_DONE(e.Do(program::BiasGrad{}, {in, db}, {db}));
            const auto got = e.Read(db);
            ExpectNear(
                got, expected, DType::kF32,
                [&](size_t i) { return s.rows * kUlp * (size[i] + std::fabs(double{before[i]})); },
                fmt::format("{} rows of {}", s.rows, s.cols));
            EXPECT_TRUE(time == 0 || got == first);
            first = got;
        }
        // A gradient of 16 bits is rounded once.
        const ValueId narrow = e.Place({s.cols}, DType::kBF16, before);
        EXPECT_DONE(e.Do(program::BiasGrad{}, {in, narrow}, {narrow}));
        const auto rounded = RoundedTo(DType::kBF16, before);
        for (size_t i = 0; i < before.size(); ++i) {
            expected[i] += double{rounded[i]} - double{before[i]};
        }
        ExpectNear(
            e.Read(narrow), expected, DType::kBF16,
            [&](size_t i) { return s.rows * kUlp * (size[i] + std::fabs(double{before[i]})); },
            "in bfloat16");
    }
}

std::vector<int32_t> OrderOf(const std::vector<int32_t>& tokens) {
    std::vector<int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {},
                             [&](int32_t row) { return tokens[static_cast<size_t>(row)]; });
    return order;
}

// The rows of a token are added in order in float32, and then the table's row is rounded once:
// there is exactly one right result.
TEST(VulkanTrainGrads, EmbeddingsAddUpTheRowsOfAToken) {
    WEFT_VULKAN(device);
    Random random(14);
    struct Sizes {
        int32_t rows;
        int64_t cols, skip, vocabulary;
        DType dy, table;
    };
    for (const Sizes& s : {Sizes{1, 3, 0, 5, DType::kF32, DType::kBF16},
                           Sizes{50, 64, 0, 9, DType::kF32, DType::kBF16},
                           Sizes{333, 97, 1, 40, DType::kBF16, DType::kF32},
                           Sizes{5000, 8, 0, 1, DType::kF32, DType::kF16},
                           Sizes{70000, 2, 0, 60, DType::kF32, DType::kF32}}) {
        const int64_t first_row = 2, table_rows = s.vocabulary;
        TrainEmitter e(device, TrainShape(s.rows), s.skip);
        StepContents step;
        for (int32_t i = 0; i < s.rows; ++i) {  // some of them on other ranks
            step.tokens.push_back(static_cast<int32_t>(random.Int(0, s.vocabulary + 3)));
        }
        step.token_order = OrderOf(step.tokens);
        e.SetStep(step);
        const auto dy = RoundedTo(s.dy, random.Normals(s.rows * s.cols));
        const auto before = RoundedTo(s.table, random.Normals(table_rows * s.cols));
        std::vector<float> sums(before.size(), 0.0f), expected(before.size());
        for (size_t i = 0; i < step.tokens.size(); ++i) {
            const int64_t row = step.tokens[i] - first_row;
            for (int64_t c = 0; row >= 0 && row < table_rows && c < s.cols; ++c) {
                sums[static_cast<size_t>(row * s.cols + c)] +=
                    dy[i * static_cast<size_t>(s.cols) + static_cast<size_t>(c)];
            }
        }
        for (size_t i = 0; i < sums.size(); ++i) {
            expected[i] = RoundedTo(s.table, before[i] + sums[i]);
        }
        const ValueId table = e.Place({table_rows, s.cols}, s.table, before);
        EXPECT_DONE(
            e.Do(program::EmbeddingGrad{first_row},
                 {e.Place({kTokens, s.cols}, s.dy, dy), e.AddInts({kTokens}, step.tokens), table},
                 {table}));
        EXPECT_EQ(e.Read(table), expected) << s.rows << " rows of " << s.cols;
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
