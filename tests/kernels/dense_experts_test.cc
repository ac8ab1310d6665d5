// The kernels of dense/experts.h on every level against sums in double or element-wise loops: odd
// sizes, one expert per token, experts without rows and on other ranks, all element types, and the
// same bits for any number of parts.
#include "kernels/dense/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/typed_matrix.h"

namespace weft::kernels::dense {
namespace {

using test::ExpectSameInParts, test::ForLevelsAndSeeds, test::Random, test::Scratch, test::Typed,
    test::Types;

// Tokens with their chosen experts, of which this rank holds `count`.
struct Chosen {
    explicit Chosen(Random& random)
        : tokens(random.Int(1, 12)),
          experts(random.Int(1, 9)),
          used(random.Int(1, std::min<int64_t>(experts, 4))),
          first(random.Int(0, experts - 1)),
          count(random.Int(1, experts - first)) {
        std::vector<int32_t> all(static_cast<size_t>(experts));
        std::iota(all.begin(), all.end(), 0);
        for (int64_t t = 0; t < tokens; ++t) {
            random.Shuffle(all);
            ids.insert(ids.end(), all.begin(), all.begin() + used);
        }
        weights = random.Normals(slots());
        begin.resize(static_cast<size_t>(count) + 1);
        sorted.resize(static_cast<size_t>(slots()));
        place.assign(static_cast<size_t>(slots()), -7);
        PlanExperts({ids.data(), tokens, used, first, count, plan()}, 0, 1);
    }
    ExpertPlan plan() { return {begin.data(), sorted.data(), place.data()}; }
    int64_t slots() const { return tokens * used; }
    int64_t held() const { return begin.back(); }
    int64_t Slot(int64_t row) const { return sorted[static_cast<size_t>(row)]; }
    int64_t Place(int64_t slot) const { return place[static_cast<size_t>(slot)]; }
    float Weight(int64_t slot) const { return weights[static_cast<size_t>(slot)]; }
    bool IsHeld(int64_t slot) const {
        const int64_t expert = ids[static_cast<size_t>(slot)] - first;
        return expert >= 0 && expert < count;
    }

    int64_t tokens, experts, used, first, count;
    std::vector<int32_t> ids, begin, sorted, place;
    std::vector<float> weights;
};

TEST(DenseExperts, PlanHasThePlaceOfEachSlot) {
    Random random(1);
    for (int i = 0; i < 50; ++i) {
        const Chosen chosen(random);
        for (int64_t slot = 0; slot < chosen.slots(); ++slot) {
            const int64_t at = chosen.Place(slot);
            ASSERT_EQ(at >= 0, chosen.IsHeld(slot));
            if (at < 0) continue;
            ASSERT_EQ(chosen.Slot(at), slot);
        }
    }
}

TEST(DenseExperts, GatherRows) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Chosen chosen(random);
        const int64_t cols = random.Int(1, 70);
        const bool weighted = random.Int(0, 1) == 0;
        const Types types(random);
        Typed x(random, chosen.tokens, cols, types.Any());
        Typed y(random, chosen.slots(), cols, types.Any());
        const GatherRowsArgs args{.plan = chosen.plan(),
                                  .experts = chosen.count,
                                  .used = chosen.used,
                                  .x = x.View(),
                                  .weights = weighted ? chosen.weights.data() : nullptr,
                                  .cols = cols,
                                  .y = y.View()};
        ExpectSameInParts([&](int part, int parts) { GatherRows(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t i = 0; i < chosen.slots(); ++i) {
            for (int64_t c = 0; c < cols; ++c) {
                if (i >= chosen.held()) {
                    ASSERT_TRUE(std::isnan(y.At(i, c)));
                    continue;
                }
                const int64_t slot = chosen.Slot(i);
                const float weight = weighted ? chosen.Weight(slot) : 1;
                ASSERT_EQ(y.At(i, c), Stored(y.type, weight * x.At(slot / chosen.used, c)));
            }
        }
        y.ExpectGaps();
    });
}

// ---- Products ----------------------------------------------------------------------------------

// One product with all experts: its operands and its result.
struct Products {
    explicit Products(Random& random)
        : chosen(random),
          n(random.Int(1, 40)),
          k(random.Int(1, 40)),
          product(random.Pick({ExpertProduct::kNT, ExpertProduct::kNN, ExpertProduct::kTN})),
          compute(random.Pick({Compute::kF32, Compute::kBf16})),
          types(random),
          a(random, chosen.slots(), product == ExpertProduct::kNT ? k : n, types.Any()),
          b(random, chosen.slots(), k, types.Any()),
          w(random, chosen.count * n, k, types.Any()),
          c(random, chosen.slots(), product == ExpertProduct::kNT ? n : k, types.Any()) {}

    bool adds() const { return product == ExpertProduct::kTN; }
    Typed& result() { return adds() ? w : c; }
    ExpertGemmArgs Args() {
        return {.product = product,
                .compute = compute,
                .begin = chosen.begin.data(),
                .first = 0,
                .last = chosen.count,
                .n = n,
                .k = k,
                .a = a.View(),
                .b = b.View(),
                .w = w.View(),
                .c = c.View(),
                .dw = w.View()};
    }
    // An operand as the product rounds it.
    double Operand(const Typed& x, int64_t i, int64_t j) const {
        return Stored(compute == Compute::kBf16 ? Element::kBf16 : Element::kF32, x.At(i, j));
    }
    struct Sum {
        double value = 0, size = 0;
        void Add(double term) { value += term, size += std::abs(term); }
    };
    // Element (i, j) of the result, for expert `e`.
    Sum Expected(int64_t e, int64_t i, int64_t j, const Typed& before) const {
        Sum sum;
        if (product == ExpertProduct::kNT) {
            for (int64_t x = 0; x < k; ++x) sum.Add(Operand(a, i, x) * Operand(w, e * n + j, x));
        } else if (product == ExpertProduct::kNN) {
            for (int64_t x = 0; x < n; ++x) sum.Add(Operand(a, i, x) * Operand(w, e * n + x, j));
        } else {
            const auto at = static_cast<size_t>(e);
            for (int64_t x = chosen.begin[at]; x < chosen.begin[at + 1]; ++x) {
                sum.Add(Operand(a, x, i - e * n) * Operand(b, x, j));
            }
            sum.Add(before.At(i, j));
        }
        return sum;
    }

    Chosen chosen;
    int64_t n, k;
    ExpertProduct product;
    Compute compute;
    Types types;
    Typed a, b, w, c;
};

TEST(DenseExperts, ProductsOfEachExpertsRows) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Products p(random);
        ExpertGemmArgs args = p.Args();
        Scratch scratch(ExpertGemmScratchBytes(kernels, args, p.chosen.slots()));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        Typed& y = p.result();
        if (!p.adds()) y.Poison();
        const Typed before = y;
        ExpectSameInParts([&](int part, int parts) { ExpertGemm(kernels, args, part, parts); },
                          [&] {
                              y.floats = before.floats;
                              y.halves = before.halves;
                          },
                          [&] { return y.Bits(); });
        for (int64_t i = 0; i < y.rows; ++i) {
            if (!p.adds() && i >= p.chosen.held()) {
                ASSERT_TRUE(std::isnan(y.At(i, 0))) << "row " << i << " is no expert's";
                continue;
            }
            const auto above = std::ranges::upper_bound(p.chosen.begin, i) - p.chosen.begin.begin();
            const int64_t e = p.adds() ? i / p.n : above - 1;
            for (int64_t j = 0; j < y.cols; ++j) {
                const Products::Sum sum = p.Expected(e, i, j, before);
                y.CheckNear(i, j, sum.value, 60 * test::kUlp * sum.size, "product");
            }
        }
        y.ExpectGaps();
    });
}

// As a stack of a block type is multiplied: each expert's matrix alone, always at the same address.
TEST(DenseExperts, ProductsOneExpertAtATimeHaveTheSameBits) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Products p(random);
        if (p.adds()) return;
        ExpertGemmArgs args = p.Args();
        Scratch scratch(ExpertGemmScratchBytes(kernels, args, p.chosen.slots()));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        p.c.Poison();
        ExpertGemm(kernels, args, 0, 1);
        const auto together = p.c.Bits();
        p.c.Poison();
        for (int64_t e = 0; e < p.chosen.count; ++e) {
            args.first = e;
            args.last = e + 1;
            args.w = p.w.View().From(e * p.n, 0);
            ExpertGemm(kernels, args, 0, 1);
        }
        ASSERT_EQ(p.c.Bits(), together);
    });
}

TEST(DenseExperts, CombineAddsTheRowsOfAToken) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Chosen chosen(random);
        const int64_t cols = random.Int(1, 70);
        const bool weighted = random.Int(0, 1) == 0, has_base = random.Int(0, 1) == 0;
        const Types types(random);
        const std::vector<float> x = random.Normals(chosen.slots() * cols);
        Typed base(random, chosen.tokens, cols, types.Any());
        Typed other(random, chosen.tokens, cols, types.Any());
        const Typed before = base;
        const bool in_place = has_base && random.Int(0, 1) == 0;
        Typed& y = in_place ? base : other;
        CombineArgs args{.plan = chosen.plan(),
                         .used = chosen.used,
                         .x = x.data(),
                         .weights = weighted ? chosen.weights.data() : nullptr,
                         .base = has_base ? ConstMatrix(base.View()) : ConstMatrix(),
                         .tokens = chosen.tokens,
                         .cols = cols,
                         .y = y.View()};
        Scratch scratch(CombineScratchBytes(args));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        ExpectSameInParts([&](int part, int parts) { Combine(kernels, args, part, parts); },
                          [&] {
                              other.Poison();
                              base.floats = before.floats;
                              base.halves = before.halves;
                          },
                          [&] { return y.Bits(); });
        for (int64_t t = 0; t < chosen.tokens; ++t) {
            for (int64_t c = 0; c < cols; ++c) {
                float sum = 0;
                for (int64_t slot = t * chosen.used; slot < (t + 1) * chosen.used; ++slot) {
                    if (chosen.Place(slot) < 0) continue;
                    const float weight = weighted ? chosen.Weight(slot) : 1;
                    sum += weight * x[static_cast<size_t>(chosen.Place(slot) * cols + c)];
                }
                if (has_base) sum += before.At(t, c);
                ASSERT_EQ(y.At(t, c), Stored(y.type, sum)) << t << ", " << c;
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseExperts, WeightGradsAreDotProducts) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Chosen chosen(random);
        const int64_t cols = random.Int(1, 70), slots = chosen.slots();
        const Types types(random);
        const std::vector<float> products = random.Normals(slots * cols);
        Typed x(random, slots, cols, types.Any()), dx(random, slots, cols, types.Any());
        std::vector<float> dweights(static_cast<size_t>(slots));
        ExpertWeightGradArgs args{.plan = chosen.plan(),
                                  .used = chosen.used,
                                  .products = products.data(),
                                  .x = x.View(),
                                  .weights = chosen.weights.data(),
                                  .tokens = chosen.tokens,
                                  .cols = cols,
                                  .dx = dx.View(),
                                  .dweights = dweights.data()};
        Scratch scratch(ExpertWeightGradScratchBytes(args));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        const ClearRestArgs rest{chosen.plan(), chosen.count, chosen.used,
                                 chosen.tokens, cols,         dx.View()};
        ExpectSameInParts(
            [&](int part, int parts) {
                ExpertWeightGrad(kernels, args, part, parts);
                ClearRest(rest, part, parts);
            },
            [&] {
                dx.Poison();
                std::ranges::fill(dweights, NAN);
            },
            [&] { return std::pair(dx.Bits(), dweights); });
        for (int64_t slot = 0; slot < slots; ++slot) {
            const int64_t at = chosen.Place(slot);
            double dot = 0, size = 0;
            for (int64_t c = 0; c < cols && at >= 0; ++c) {
                const float product = products[static_cast<size_t>(at * cols + c)];
                dot += double{product} * double{x.At(at, c)};
                size += std::abs(double{product} * double{x.At(at, c)});
                ASSERT_EQ(dx.At(at, c), Stored(dx.type, chosen.Weight(slot) * product));
            }
            const double error = std::abs(double{dweights[static_cast<size_t>(slot)]} - dot);
            EXPECT_LE(error, static_cast<double>(cols + 8) * test::kUlp * size);
        }
        for (int64_t i = chosen.held(); i < slots; ++i) {
            for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(dx.At(i, c), 0);
        }
        dx.ExpectGaps();
    });
}

// ---- Routers -----------------------------------------------------------------------------------

double SigmoidOf(double x) {
    return 1 / (1 + std::exp(-x));
}
// The scores of one row in double.
std::vector<double> ScoresOf(const float* logits, int64_t experts, bool sigmoid) {
    std::vector<double> scores;
    double sum = 0;
    const double most = *std::max_element(logits, logits + experts);
    for (int64_t e = 0; e < experts; ++e) {
        scores.push_back(sigmoid ? SigmoidOf(logits[e]) : std::exp(logits[e] - most));
        sum += scores.back();
    }
    for (double& score : scores) score /= sigmoid ? 1 : sum;
    return scores;
}
constexpr double kScoreError = 0x1p-20;  // the error of an exponential and a few roundings

// By the chain rule: the gradient of each weight by each score, and of each score by each logit.
TEST(DenseExperts, RouteGradIsTheDerivativeOfTheWeights) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        const Chosen chosen(random);
        const auto used = static_cast<size_t>(chosen.used);
        const auto experts = static_cast<size_t>(chosen.experts);
        const std::vector<float> logits = random.Normals(chosen.tokens * chosen.experts, 2);
        std::vector<float> d(logits.size());
        const RouteGradArgs args{.dweights = chosen.weights.data(),
                                 .logits = logits.data(),
                                 .ids = chosen.ids.data(),
                                 .rows = chosen.tokens,
                                 .experts = chosen.experts,
                                 .used = chosen.used,
                                 .sigmoid = random.Int(0, 1) == 0,
                                 .renormalise = random.Int(0, 1) == 0,
                                 .scale = 2.5f,
                                 .dlogits = d.data()};
        ExpectSameInParts([&](int part, int parts) { RouteGrad(args, part, parts); },
                          [&] { std::ranges::fill(d, NAN); }, [&] { return d; });
        for (size_t t = 0; t < static_cast<size_t>(chosen.tokens); ++t) {
            const auto scores = ScoresOf(&logits[t * experts], chosen.experts, args.sigmoid);
            const int32_t* ids = &chosen.ids[t * used];
            double sum = 0;
            for (size_t k = 0; k < used; ++k) sum += scores[static_cast<size_t>(ids[k])];
            for (size_t e = 0; e < experts; ++e) {
                double expected = 0, size = 0;
                for (size_t k = 0; k < used; ++k) {
                    for (size_t j = 0; j < used; ++j) {  // weight k by score j by logit e
                        const auto of = static_cast<size_t>(ids[j]);
                        const double own = k == j ? 1 : 0, is = of == e ? 1 : 0;
                        const double s = scores[static_cast<size_t>(ids[k])];
                        const double by_score =
                            args.renormalise ? (own * sum - s) / (sum * sum) : own;
                        const double by_logit = args.sigmoid ? is * scores[e] * (1 - scores[e])
                                                             : scores[of] * (is - scores[e]);
                        const double term =
                            double{args.scale} * chosen.weights[t * used + k] * by_score * by_logit;
                        expected += term;
                        size += std::abs(term);
                    }
                }
                const double error = std::abs(d[t * experts + e] - expected);
                EXPECT_LE(error, 8 * kScoreError * size + 1e-7) << t << ", " << e;
            }
        }
    });
}

// Weights of sigmoid scores s are s / (sum(s) + 1e-20), with its gradients, however small the
// scores are.
TEST(DenseExperts, RouteGradsOfExtremeScores) {
    for (const float logit : {0.0f, 20.0f, 100.0f, -20.0f, -44.0f, -50.0f, -80.0f, -100.0f}) {
        const float logits[] = {logit, logit - 0.5f}, dweights[] = {2, -1};
        const int32_t ids[] = {0, 1};
        float d[2] = {}, dfactors[2] = {}, factors[] = {1, 1};
        const RouteGradArgs args{.dweights = dweights,
                                 .logits = logits,
                                 .ids = ids,
                                 .rows = 1,
                                 .experts = 2,
                                 .used = 2,
                                 .sigmoid = true,
                                 .renormalise = true,
                                 .scale = 2.5f,
                                 .factors = factors,
                                 .dlogits = d,
                                 .dfactors = dfactors};
        RouteGrad(args, 0, 1);
        RouteFactorsGrad(args, 0, 1);
        double s[2], divisor = 1e-20, dot = 0;
        for (size_t k = 0; k < 2; ++k) {
            s[k] = SigmoidOf(logits[k]);
            divisor += s[k];
            dot += s[k] * dweights[k];
        }
        for (size_t k = 0; k < 2; ++k) {
            const double by_score = 2.5 * (dweights[k] - dot / divisor) / divisor;
            const double expected = by_score * s[k] * SigmoidOf(-logits[k]);
            // (exp underflows from -87 on, and the rest of a sigmoid from 17 on.)
            const double least = 1e-6;
            EXPECT_TRUE(std::abs(d[k] - expected) <= 1e-5 * std::abs(expected) + least)
                << logit << ": " << d[k] << ", not " << expected;
            const double by_factor = 2.5 * s[k] / divisor * dweights[k];
            EXPECT_TRUE(std::abs(dfactors[k] - by_factor) <= 1e-5 * std::abs(by_factor) + least)
                << logit << ": " << dfactors[k] << ", not " << by_factor;
        }
    }
}

TEST(DenseExperts, GateRows) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), cols = random.Int(1, 70);
        const Types types(random);
        Typed x(random, rows, cols, types.Any()), y(random, rows, cols, types.Any());
        const std::vector<float> gate = random.Normals(rows);
        const GateRowsArgs args{x.View(), gate.data(), rows, cols, y.View()};
        ExpectSameInParts([&](int part, int parts) { GateRows(kernels, args, part, parts); },
                          [&] { y.Poison(); }, [&] { return y.Bits(); });
        for (int64_t i = 0; i < rows; ++i) {
            const double s = SigmoidOf(gate[static_cast<size_t>(i)]);
            for (int64_t c = 0; c < cols; ++c) {
                const double expected = s * x.At(i, c);
                y.CheckNear(i, c, expected, kScoreError * std::abs(expected), "y");
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseExperts, GateRowsBySoftplus) {
    const std::vector<float> x(5, 1), gate = {-50, -3, 0, 2, 90};
    std::vector<float> y(5);
    GateRows(KernelsFor(CpuLevel::kReference),
             {.x = {x.data(), 1},
              .gate = gate.data(),
              .rows = 5,
              .cols = 1,
              .y = {y.data(), 1},
              .softplus = true},
             0, 1);
    for (size_t i = 0; i < 5; ++i) {
        const double right = std::log1p(std::exp(double{gate[i]}));
        EXPECT_FALSE(!(std::fabs(y[i] - right) <= right * 4 * 0x1p-24)) << gate[i];
    }
}

TEST(DenseExperts, GateRowsGrad) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), cols = random.Int(1, 70);
        const Types types(random);
        Typed dy(random, rows, cols, types.Any()), x(random, rows, cols, types.Any());
        Typed dx(random, rows, cols, types.Any());
        const std::vector<float> gate = random.Normals(rows);
        std::vector<float> dgate(gate.size());
        GateRowsGradArgs args{.dy = dy.View(),
                              .x = x.View(),
                              .gate = gate.data(),
                              .rows = rows,
                              .cols = cols,
                              .dx = dx.View(),
                              .dgate = dgate.data()};
        Scratch scratch(GateRowsGradScratchBytes(args));
        args.scratch = scratch.data();
        args.scratch_bytes = scratch.bytes;
        ExpectSameInParts([&](int part, int parts) { GateRowsGrad(kernels, args, part, parts); },
                          [&] {
                              dx.Poison();
                              std::ranges::fill(dgate, NAN);
                          },
                          [&] { return std::pair(dx.Bits(), dgate); });
        for (int64_t i = 0; i < rows; ++i) {
            const double s = SigmoidOf(gate[static_cast<size_t>(i)]);
            double dot = 0, size = 0;
            for (int64_t c = 0; c < cols; ++c) {
                const double product = double{dy.At(i, c)} * double{x.At(i, c)};
                dot += product;
                size += std::abs(product);
                const double expected = s * dy.At(i, c);
                dx.CheckNear(i, c, expected, kScoreError * std::abs(expected), "dx");
            }
            const double error = std::abs(dgate[static_cast<size_t>(i)] - dot * s * (1 - s));
            EXPECT_LE(error, (kScoreError + static_cast<double>(cols) * test::kUlp) * size);
        }
        dx.ExpectGaps();
    });
}

TEST(DenseExperts, RouterLoadCountsChoicesAndAddsScores) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        const Chosen chosen(random);
        const auto experts = static_cast<size_t>(chosen.experts);
        const std::vector<float> logits = random.Normals(chosen.tokens * chosen.experts, 2);
        const bool first = random.Int(0, 1) == 0, in_place = random.Int(0, 1) == 0;
        const std::vector<float> earlier = random.Normals(2 * chosen.experts);
        std::vector<float> scores(logits.size()), before, load;
        const RouterScoresArgs softmax{logits.data(), chosen.tokens, chosen.experts, scores.data()};
        ExpectSameInParts([&](int part, int parts) { RouterScores(softmax, part, parts); },
                          [&] { std::ranges::fill(scores, NAN); }, [&] { return scores; });
        ExpectSameInParts(
            [&](int part, int parts) {
                RouterLoadArgs args{.scores = scores.data(),
                                    .ids = chosen.ids.data(),
                                    .rows = chosen.tokens,
                                    .experts = chosen.experts,
                                    .used = chosen.used,
                                    .load = load.data()};
                if (!first) args.before = in_place ? load.data() : before.data();
                RouterLoad(args, part, parts);
            },
            [&] {
                before = earlier;
                load = in_place && !first ? earlier : std::vector<float>(2 * experts, NAN);
            },
            [&] { return load; });
        for (size_t e = 0; e < experts; ++e) {
            double count = first ? 0 : double{earlier[e]};
            double sum = first ? 0 : double{earlier[experts + e]};
            count += static_cast<double>(std::ranges::count(chosen.ids, static_cast<int32_t>(e)));
            for (size_t t = 0; t < static_cast<size_t>(chosen.tokens); ++t) {
                sum += ScoresOf(&logits[t * experts], chosen.experts, false)[e];
            }
            EXPECT_LE(std::abs(load[e] - count), 2 * test::kUlp * std::abs(count));
            const double size = std::abs(sum) + static_cast<double>(chosen.tokens);
            EXPECT_LE(std::abs(load[experts + e] - sum), kScoreError * size);
        }
    });
}

TEST(DenseExperts, RouterLoadGradIsThatOfASoftmax) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        const int64_t rows = random.Int(1, 9), experts = random.Int(1, 20);
        const auto cols = static_cast<size_t>(experts);
        const std::vector<float> logits = random.Normals(rows * experts, 2);
        std::vector<float> dload = random.Normals(2 * experts), d(logits.size());
        std::fill_n(dload.begin(), experts, NAN);  // counts have no gradient
        const RouterLoadGradArgs args{dload.data(), logits.data(), rows, experts, d.data()};
        ExpectSameInParts([&](int part, int parts) { RouterLoadGrad(args, part, parts); },
                          [&] { std::ranges::fill(d, NAN); }, [&] { return d; });
        for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
            const auto p = ScoresOf(&logits[row * cols], experts, false);
            for (size_t e = 0; e < cols; ++e) {
                double expected = 0, size = 0;
                for (size_t j = 0; j < cols; ++j) {
                    const double term =
                        double{dload[cols + j]} * p[j] * ((j == e ? 1.0 : 0.0) - p[e]);
                    expected += term;
                    size += std::abs(term);
                }
                EXPECT_LE(std::abs(d[row * cols + e] - expected), 4 * kScoreError * size + 1e-12);
            }
        }
    });
}

TEST(DenseExperts, LoadBalance) {
    // 6 rows with two experts each; without any choice, the number of rows counts as one.
    const std::vector<float> load = {6, 4, 2, 3.5f, 1.5f, 1}, none(6, 0.0f);
    float y = NAN;
    double wide = NAN;
    for (int part = 0; part < 3; ++part) LoadBalance({load.data(), 3, 2, &y, &wide}, part, 3);
    EXPECT_DOUBLE_EQ(wide, 3.0 / 36 * (6 * 3.5 + 4 * 1.5 + 2 * 1));
    EXPECT_EQ(y, static_cast<float>(wide));
    LoadBalance({none.data(), 3, 2, &y}, 0, 1);
    EXPECT_EQ(y, 0);

    const float dy = 0.5f;
    std::vector<float> d(6, NAN);
    for (int part = 0; part < 3; ++part) {
        LoadBalanceGrad({&dy, load.data(), 3, 2, d.data()}, part, 3);
    }
    for (size_t e = 0; e < 3; ++e) {
        EXPECT_EQ(d[e], 0);
        EXPECT_FLOAT_EQ(d[3 + e], static_cast<float>(0.5 * 3 / 36) * load[e]);
    }
}

}  // namespace
}  // namespace weft::kernels::dense
