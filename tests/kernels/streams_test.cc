// Kernels of hyper-connections against the plain formulas in double, over random shapes; neither
// the number of parts nor the other rows change a row's bits.
#include "kernels/streams.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/kernel_levels.h"
#include "support/naive_streams.h"

namespace weft::kernels::test {
namespace {

using support::OpCall;

std::vector<double> WidenedOf(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& expected, double bound,
                 const char* what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - expected[i]), bound) << what << ", element " << i;
    }
}

// A kernel's result in one part, in several, and for each row alone: the same bits.
template <typename Args, typename Alone>
std::vector<float> RunAllWays(void (*kernel)(const Args&, int, int), Args args, int64_t cols,
                              const Alone& alone) {
    std::vector<float> y(static_cast<size_t>(args.rows * cols), 1e30f), again = y;
    args.y = y.data();
    RunParts(kernel, args, 1);
    args.y = again.data();
    RunParts(kernel, args, 3);
    EXPECT_EQ(y, again);
    for (int64_t row = 0; row < args.rows; ++row) {
        std::vector<float> one(static_cast<size_t>(cols), 1e30f);
        Args of_row = alone(args, row);
        of_row.rows = 1;
        of_row.y = one.data();
        RunParts(kernel, of_row, 2);
        EXPECT_TRUE(std::equal(one.begin(), one.end(), y.begin() + row * cols));
    }
    return y;
}

TEST(Streams, WeightsAreTheFormula) {
    Random random(3);
    for (int time = 0; time < 40; ++time) {
        const int64_t n = random.Int(1, 6), rows = random.Int(1, 5);
        const bool mixed = random.Int(0, 3) > 0, independent = mixed && random.Int(0, 2) == 0;
        StreamWeightsArgs args;
        args.magnitude = independent ? 1.5f : 2.0f;
        args.rows = rows, args.streams = n, args.iterations = random.Int(1, 20), args.eps = 1e-4f;
        args.cols = independent ? 2 * n : mixed ? StreamWeightColumns(n) : n;
        const auto logits = random.Normals(rows * args.cols), base = random.Normals(args.cols);
        const auto scale = random.Normals(independent ? 2 : mixed ? 3 : 1);
        args.logits = logits.data(), args.base = base.data(), args.scale = scale.data();
        const auto y = RunAllWays(StreamWeights, args, args.cols, [](auto a, int64_t row) {
            a.logits += row * a.cols;
            return a;
        });
        auto in = WidenedOf(logits), in_base = WidenedOf(base), in_scale = WidenedOf(scale);
        std::vector<double> expected(in.size());
        OpCall<double> call{
            {{in, rows}, {in_base, args.cols}, {in_scale, static_cast<int64_t>(scale.size())}},
            {{expected, rows}},
            {}};
        support::naive::Do(program::StreamWeights{n, args.iterations, args.eps, args.magnitude},
                           call);
        // A quotient of each iteration is rounded; the sum of a row or column keeps the error
        // small.
        const double bound = kUlp * 8 * static_cast<double>(40 + n * args.iterations);
        ExpectClose(y, expected, bound, "weights");
        if (!mixed || independent) continue;
        for (int64_t col = 0; col < n; ++col) {
            float sum = 0;
            for (int64_t row = 0; row < n; ++row) {
                sum += y[static_cast<size_t>((2 + row) * n + col)];
            }
            EXPECT_NEAR(sum, 1, 1e-3) << "a column of the matrix";
        }
    }
}

TEST(Streams, MergedAndMixed) {
    Random random(4);
    for (int time = 0; time < 30; ++time) {
        const int64_t n = random.Int(1, 5), rows = random.Int(1, 4), cols = random.Int(1, 2500);
        const bool independent = random.Int(0, 2) == 0;
        const int64_t weight_cols = independent ? 2 * n : StreamWeightColumns(n);
        const auto x = random.Normals(rows * n * cols), update = random.Normals(rows * cols);
        const auto weights = random.Normals(rows * weight_cols);
        auto in = WidenedOf(x), in_weights = WidenedOf(weights), in_update = WidenedOf(update);

        MergeStreamsArgs merge{x.data(), weights.data(), rows, cols, n, weight_cols};
        const auto merged = RunAllWays(MergeStreams, merge, cols, [n](auto a, int64_t row) {
            a.x += row * n * a.cols;
            a.weights += row * a.weight_cols;
            return a;
        });
        std::vector<double> sums(update.size());
        OpCall<double> merging{{{in, rows}, {in_weights, rows}}, {{sums, rows}}, {}};
        support::naive::Do(program::MergeStreams{n}, merging);
        ExpectClose(merged, sums, kUlp * 40 * static_cast<double>(2 * n), "merged");

        MixStreamsArgs mix{x.data(), weights.data(), update.data(), rows, cols, n, weight_cols};
        const auto mixed = RunAllWays(MixStreams, mix, n * cols, [n](auto a, int64_t row) {
            a.x += row * n * a.cols;
            a.weights += row * a.weight_cols;
            a.update += row * a.cols;
            return a;
        });
        std::vector<double> mixtures(x.size());
        OpCall<double> mixing{
            {{in, rows}, {in_weights, rows}, {in_update, rows}}, {{mixtures, rows}}, {}};
        support::naive::Do(program::MixStreams{n}, mixing);
        ExpectClose(mixed, mixtures, kUlp * 40 * static_cast<double>(2 * n + 1), "mixed");
    }
}

// ---- Gemma 3n -----------------------------------------------------------------------------------

TEST(Streams, WeightsOfAltUpAreTheFormula) {
    Random random(5);
    for (const bool corrects : {false, true}) {
        const int64_t n = random.Int(2, 5), rows = random.Int(1, 4), cols = StreamWeightColumns(n);
        const auto coefs = random.Normals(rows * (corrects ? n : n * n));
        AltUpWeightsArgs args{coefs.data(), rows, cols, n, corrects};
        const auto y = RunAllWays(AltUpWeights, args, cols, [](auto a, int64_t row) {
            a.coefs += row * (a.corrects ? a.streams : a.streams * a.streams);
            return a;
        });
        auto in = WidenedOf(coefs);
        std::vector<double> expected(y.size());
        OpCall<double> call{{{in, rows}}, {{expected, rows}}, {}};
        support::naive::Do(program::AltUpWeights{n, corrects}, call);
        ExpectClose(y, expected, 16 * kUlp, "weights of AltUp");
    }
}

TEST(Streams, MatchedAndScaled) {
    Random random(6);
    for (int time = 0; time < 10; ++time) {
        const int64_t n = random.Int(1, 4), rows = random.Int(1, 3), cols = random.Int(1, 1500);
        auto x = random.Normals(rows * n * cols);
        const auto like = random.Normals(rows * cols), weight = random.Normals(cols);
        if (time == 0) std::fill_n(x.begin(), cols, 1e-4f);  // a mean square below the least
        auto in = WidenedOf(x), in_like = WidenedOf(like), in_weight = WidenedOf(weight);

        MatchStreamsArgs match{x.data(), like.data(), rows, n * cols, cols};
        const auto matched = RunAllWays(MatchStreams, match, n * cols, [](auto a, int64_t row) {
            a.x += row * a.cols;
            a.target += row * a.target_cols;
            return a;
        });
        std::vector<double> expected(x.size());
        OpCall<double> matching{{{in, rows}, {in_like, rows}}, {{expected, rows}}, {}};
        support::naive::Do(program::MatchStreams{}, matching);
        // A factor and a product are rounded; an element is at most the root of all columns.
        ExpectClose(matched, expected, 4 * kUlp * std::sqrt(static_cast<double>(cols)) * 4,
                    "match");

        ScaleColumnsArgs scale{x.data(), weight.data(), rows, cols, n * cols};
        const auto scaled = RunAllWays(ScaleColumns, scale, cols, [](auto a, int64_t row) {
            a.x += row * a.x_cols;
            return a;
        });
        std::vector<double> products(scaled.size());
        OpCall<double> scaling{{{in, rows}, {in_weight, cols}}, {{products, rows}}, {}};
        support::naive::Do(program::ScaleColumns{}, scaling);
        ExpectClose(scaled, products, 32 * kUlp, "scaled");
    }
}

TEST(Streams, RowsAboveTheirCut) {
    Random random(7);
    for (int time = 0; time < 10; ++time) {
        const int64_t rows = random.Int(1, 4), cols = random.Int(2, 2500);
        const auto x = random.Normals(rows * cols);
        RowMomentsArgs sums{x.data(), rows, 2, cols};
        const auto moments = RunAllWays(RowMoments, sums, 2, [](auto a, int64_t row) {
            a.x += row * a.x_cols;
            return a;
        });
        SparsifyArgs cut{x.data(), moments.data(), rows, cols, cols, 0.7f};
        const auto y = RunAllWays(Sparsify, cut, cols, [](auto a, int64_t row) {
            a.x += row * a.cols;
            a.moments += row * 2;
            return a;
        });
        auto in = WidenedOf(x);
        std::vector<double> of_rows(moments.size()), expected(x.size());
        OpCall<double> summing{{{in, rows}}, {{of_rows, rows}}, {}};
        support::naive::Do(program::RowMoments{}, summing);
        OpCall<double> cutting{{{in, rows}, {of_rows, rows}}, {{expected, rows}}, {}};
        support::naive::Do(program::Sparsify{cols, 0.7f}, cutting);
        // Moments are rounded once, to 2^-24 of sums of up to 2500 squares.
        ExpectClose(y, expected, 64 * kUlp, "cut");
    }
}

TEST(IdentityExperts, ARowTimesTheWeightsOfItsExperts) {
    const std::vector<float> x = {1, 2, -3, 4}, weights = {0.5f, 0.25f, 2, 1};
    const std::vector<int32_t> ids = {0, 3, 4, 5};
    for (const int parts : {1, 3}) {
        std::vector<float> y(4, 9);
        IdentityExpertsArgs args{x.data(), ids.data(), weights.data(), 2, 2, 2, 3, y.data()};
        RunParts(IdentityExperts, args, parts);
        EXPECT_EQ(y, (std::vector<float>{0.25f, 0.5f, -9, 12}));
    }
}

}  // namespace
}  // namespace weft::kernels::test
