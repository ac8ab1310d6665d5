// The reference backward kernels against naive loops in double (support/naive_ops.h), over random
// shapes, strides and parts. Elements that a kernel does not own must not change.
#include "kernels/reference/backward.h"
#include "kernels/reference/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/naive_ops.h"

namespace weft::kernels::reference {
namespace {

using support::Matrix;
using support::OpCall;

constexpr float kUntouched = -777.0f;

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    int64_t Int(int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(engine_);
    }
    float Normal() { return std::normal_distribution<float>()(engine_); }

  private:
    std::mt19937 engine_;
};

// A float matrix with a stride, and the same numbers in double without one.
struct Both {
    int64_t rows, cols, stride;
    std::vector<float> floats;
    std::vector<double> doubles;

    Both(Random& random, int64_t row_count, int64_t col_count, bool dense = false)
        : rows(row_count), cols(col_count), stride(col_count + (dense ? 0 : random.Int(0, 3))) {
        floats.assign(static_cast<size_t>(rows * stride), kUntouched);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                floats[static_cast<size_t>(i * stride + j)] = random.Normal();
                doubles.push_back(floats[static_cast<size_t>(i * stride + j)]);
            }
        }
    }
    float* data() { return floats.data(); }
    dense::Matrix view() { return {data(), stride}; }
    Matrix<double> matrix() { return {doubles, rows}; }

    // A float sum of n products of numbers of order one has an error of at most n * 2^-24 of the
    // sum of their sizes, about n, times the few sums that one kernel chains.
    void ExpectClose(int64_t n, const char* what) const {
        const double count = static_cast<double>(n);
        const double tolerance = 8 * count * std::ldexp(1.0, -24) * (1 + std::sqrt(count));
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < stride; ++j) {
                const double value = floats[static_cast<size_t>(i * stride + j)];
                if (j >= cols) {
                    EXPECT_EQ(value, kUntouched) << what;
                    continue;
                }
                const double expected = doubles[static_cast<size_t>(i * cols + j)];
                EXPECT_LE(std::abs(value - expected), tolerance * (1 + std::abs(expected)))
                    << what << " [" << i << ", " << j << "]";
            }
        }
    }
};

void Clear(Both& both) {
    both.doubles.assign(both.doubles.size(), 0.0);
}

template <typename Attributes>
void Naive(const Attributes& attributes, std::vector<Matrix<double>> in,
           std::vector<Matrix<double>> out, std::span<const Sequence> sequences = {}) {
    OpCall<double> call{std::move(in), std::move(out), sequences};
    support::naive::Do(attributes, call);
}

template <typename F>
void BackwardInParts(Random& random, const F& kernel) {
    const int parts = static_cast<int>(random.Int(1, 5));
    const bool last_first = random.Int(0, 1) == 1;
    for (int i = 0; i < parts; ++i) kernel(last_first ? parts - 1 - i : i, parts);
}

std::vector<double> AsDouble(const std::vector<int32_t>& ints) {
    return {ints.begin(), ints.end()};
}

// Runs a test over random cases.
template <typename F>
void ForSeeds(const F& test) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Random random(seed);
        test(random);
    }
}

TEST(Backward, MatMulGradients) {
    ForSeeds([](Random& random) {
        const int64_t rows = random.Int(1, 9), n = random.Int(1, 33), k = random.Int(1, 33);
        Both dy(random, rows, n), x(random, rows, k), weight(random, n, k, true);
        Both dx(random, rows, k), dw(random, n, k, true), db(random, n, 1, true);
        Clear(dx);
        BackwardInParts(random, [&](int part, int parts) {
            MatMulGradInput({dy.data(), dy.stride, weight.data(), rows, n, k, dx.data(), dx.stride},
                            part, parts);
            MatMulGradWeight({dy.data(), x.data(), dy.stride, x.stride, rows, n, k, dw.data()},
                             part, parts);
            kRows.bias_grad({dy.view(), rows, n, db.data()}, part, parts);
        });
        Naive(program::MatMulGradInput{}, {dy.matrix(), weight.matrix()}, {dx.matrix()});
        Naive(program::MatMulGradWeight{}, {dy.matrix(), x.matrix()}, {dw.matrix()});
        Naive(program::BiasGrad{}, {dy.matrix()}, {db.matrix()});
        dx.ExpectClose(n, "dx");
        dw.ExpectClose(rows, "dw");
        db.ExpectClose(rows, "db");
    });
}

TEST(Backward, RmsNormGradients) {
    ForSeeds([](Random& random) {
        const int64_t rows = random.Int(1, 6), group = random.Int(1, 20);
        const int64_t cols = group * random.Int(1, 4);
        Both dy(random, rows, cols), x(random, rows, cols), weight(random, group, 1, true);
        Both dx(random, rows, cols), dw(random, group, 1, true);
        Clear(dx);
        const dense::RmsNormGradArgs args{dy.view(), x.view(), weight.data(), 0.5f,     rows,
                                          cols,      group,    dx.view(),     dw.data()};
        BackwardInParts(random, [&](int part, int parts) {
            kRows.norm_grad_input(args, part, parts);
            kRows.norm_grad_weight(args, part, parts);
        });
        Naive(program::RmsNormGradInput{0.5f, group}, {dy.matrix(), x.matrix(), weight.matrix()},
              {dx.matrix()});
        Naive(program::RmsNormGradWeight{0.5f, group}, {dy.matrix(), x.matrix()}, {dw.matrix()});
        dx.ExpectClose(2 * group, "dx");
        dw.ExpectClose(rows * cols, "dw");
    });
}

TEST(Backward, AttentionAndItsGradients) {
    ForSeeds([](Random& random) {
        program::Attention a;
        a.head_dim = random.Int(1, 9);
        a.group = random.Int(1, 4);
        a.heads = random.Int(1, 7);
        a.first_head = random.Int(0, 5);
        a.first_kv_head = a.first_head / a.group;
        a.kv_heads = (a.first_head + a.heads - 1) / a.group - a.first_kv_head + 1;
        a.scale = 0.5f;
        const int64_t rows = random.Int(2, 14), split = random.Int(1, rows - 1);
        const std::vector<Sequence> sequences = {
            {static_cast<int32_t>(split), static_cast<int32_t>(rows - split), 0, {}},
            {0, static_cast<int32_t>(split), 0, {}}};
        const int64_t q_cols = a.heads * a.head_dim, kv_cols = a.kv_heads * a.head_dim;
        Both q(random, rows, q_cols), k(random, rows, kv_cols), v(random, rows, kv_cols);
        Both out(random, rows, q_cols), dout(random, rows, q_cols);
        Both dq(random, rows, q_cols), dk(random, rows, kv_cols), dv(random, rows, kv_cols);
        for (Both* both : {&out, &dq, &dk, &dv}) Clear(*both);
        std::vector<float> lse(static_cast<size_t>(a.heads * rows));
        const dense::CausalArgs forward{
            sequences,    q.view(), k.view(),        v.view(), a.heads,    a.kv_heads, a.head_dim,
            a.first_head, a.group,  a.first_kv_head, a.scale,  out.view(), lse.data(), rows};
        const dense::CausalGradArgs backward{forward, dout.view(), dq.view(), dk.view(), dv.view()};
        std::vector<std::byte> scratch(
            static_cast<size_t>(kCausal.causal_grad_scratch_bytes(backward)));
        BackwardInParts(random, [&](int part, int parts) {
            kCausal.causal(forward, scratch, part, parts);
            kCausal.causal_grad(backward, scratch, part, parts);
        });
        Naive(a, {q.matrix(), k.matrix(), v.matrix()}, {out.matrix()}, sequences);
        Naive(program::AttentionGrad{a}, {dout.matrix(), q.matrix(), k.matrix(), v.matrix()},
              {dq.matrix(), dk.matrix(), dv.matrix()}, sequences);
        out.ExpectClose(rows + a.head_dim, "out");
        dq.ExpectClose(rows * a.head_dim, "dq");
        dk.ExpectClose(rows * a.head_dim * a.group, "dk");
        dv.ExpectClose(rows * a.head_dim * a.group, "dv");
    });
}

TEST(Backward, GluGradient) {
    ForSeeds([](Random& random) {
        const int64_t rows = random.Int(1, 6), cols = random.Int(1, 20);
        Both dout(random, rows, cols), gate(random, rows, cols), up(random, rows, cols);
        Both dgate(random, rows, cols), dup(random, rows, cols);
        Clear(dgate);
        Clear(dup);
        const auto activation = random.Int(0, 1) == 0 ? Activation::kSilu : Activation::kGeluTanh;
        const dense::GluGradArgs args{dout.view(), gate.view(),  up.view(),  rows,
                                      cols,        dgate.view(), dup.view(), activation};
        BackwardInParts(random, [&](int part, int parts) { kRows.glu_grad(args, part, parts); });
        Naive(program::GluGrad{activation}, {dout.matrix(), gate.matrix(), up.matrix()},
              {dgate.matrix(), dup.matrix()});
        dgate.ExpectClose(4, "dgate");
        dup.ExpectClose(4, "dup");
    });
}

TEST(Backward, RowsOfTablesAndSelectedRows) {
    ForSeeds([](Random& random) {
        const int64_t rows = random.Int(1, 9), cols = random.Int(1, 9), count = random.Int(1, 12);
        const int64_t first_row = random.Int(0, 3);
        std::vector<int32_t> tokens, selected;
        for (int64_t i = 0; i < count; ++i) {
            tokens.push_back(static_cast<int32_t>(random.Int(0, rows + first_row + 2)));
            selected.push_back(static_cast<int32_t>(random.Int(0, rows - 1)));
        }
        std::vector<double> token_doubles = AsDouble(tokens), selected_doubles = AsDouble(selected);
        Both dy(random, count, cols), dtable(random, rows, cols, true), dx(random, rows, cols);
        Clear(dx);
        BackwardInParts(random, [&](int part, int parts) {
            EmbeddingGrad(
                {dy.data(), dy.stride, tokens.data(), count, first_row, rows, cols, dtable.data()},
                part, parts);
            SelectRowsGrad(
                {dy.data(), dy.stride, selected.data(), count, rows, cols, dx.data(), dx.stride},
                part, parts);
        });
        Naive(program::EmbeddingGrad{first_row}, {dy.matrix(), {token_doubles, count}},
              {dtable.matrix()});
        Naive(program::SelectRowsGrad{}, {dy.matrix(), {selected_doubles, count}}, {dx.matrix()});
        dtable.ExpectClose(count, "dtable");
        dx.ExpectClose(count, "dx");
    });
}

}  // namespace
}  // namespace weft::kernels::reference
