// The row kernels of dense/rows.h, and the soft cap.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/vector/math.h"

namespace weft::kernels::WEFT_SET {
namespace {

// Calls on(row, column) for each of this part's groups of columns.
template <typename On>
inline void ForGroups(int64_t rows, int64_t cols, int64_t group, int part, int parts, On on) {
    const int64_t groups = cols / group;
    const Range share = Share(rows * groups, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        on(unit / groups, unit % groups * group);
    }
}

// Calls on(row, begin, end) for this part's columns of each row.
template <typename On>
inline void ForRows(int64_t rows, int64_t cols, int part, int parts, On on) {
    const Range share = Share(rows * cols, 16, part, parts);
    for (int64_t at = share.begin; at < share.end;) {
        const int64_t row = at / cols, begin = at % cols;
        const int64_t end = std::min(cols, begin + share.end - at);
        on(row, begin, end);
        at += end - begin;
    }
}

// Sums squares in four vectors, whose lanes are added only at the end.
template <typename T>
inline float SumOfSquares(const T* x, int64_t count) {
    constexpr int64_t kStep = 4 * Simd::kLanes;
    Float sums[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
    int64_t i = 0;
    for (; i + kStep <= count; i += kStep) {
        for (int k = 0; k < 4; ++k) {
            const Float value = Simd::Load(x + i + k * Simd::kLanes);
            sums[k] = Simd::Fma(value, value, sums[k]);
        }
    }
    ForVectors(
        i, count,
        [&](int64_t at) {
            const Float value = Simd::Load(x + at);
            sums[0] = Simd::Fma(value, value, sums[0]);
        },
        [&](int64_t at, int64_t left) {
            const Float value = Simd::LoadFirst(x + at, left);
            sums[1] = Simd::Fma(value, value, sums[1]);
        });
    return Simd::Sum(Simd::Add(Simd::Add(sums[0], sums[1]), Simd::Add(sums[2], sums[3])));
}

inline float InverseRms(float squares, int64_t count, float eps) {
    return 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + eps);
}
template <typename T>
inline float InverseRms(const T* x, int64_t count, float eps) {
    return InverseRms(SumOfSquares(x, count), count, eps);
}

// A group of a norm that subtracts the mean. Lanes are added only at the end.
template <typename X, typename Y>
inline void NormCentered(const dense::RmsNormArgs& args, const X* x, Y* y) {
    const auto count = static_cast<float>(args.group);
    Float sum = Simd::Zero(), squares = Simd::Zero();
    ForVectors(
        0, args.group, [&](int64_t i) { sum = Simd::Add(sum, Simd::Load(x + i)); },
        [&](int64_t i, int64_t left) { sum = Simd::Add(sum, Simd::LoadFirst(x + i, left)); });
    const auto center = Simd::Set(Simd::Sum(sum) / count);
    const auto add = [&](Float value) { squares = Simd::Fma(value, value, squares); };
    ForVectors(
        0, args.group, [&](int64_t i) { add(Simd::Sub(Simd::Load(x + i), center)); },
        [&](int64_t i, int64_t left) {
            add(Simd::Select(left, Simd::Sub(Simd::LoadFirst(x + i, left), center), Simd::Zero()));
        });
    const auto scale = Simd::Set(InverseRms(Simd::Sum(squares), args.group, args.eps));
    ForElements(0, args.group, [&](auto load, auto store) {
        const auto scaled = Simd::Mul(Simd::Sub(load(x), center), scale);
        store(y, args.weight == nullptr ? scaled : Simd::Mul(scaled, load(args.weight)));
    });
}

void Norm(const dense::RmsNormArgs& args, int part, int parts) {
    const auto rows = [&](auto x_type, auto y_type) {
        ForGroups(args.rows, args.cols, args.group, part, parts, [&](int64_t row, int64_t column) {
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            auto* y = args.y.Row<decltype(y_type)>(row) + column;
            if (args.centered) return NormCentered(args, x, y);
            const auto scale = Simd::Set(
                args.squares == nullptr
                    ? InverseRms(x, args.group, args.eps)
                    : InverseRms(args.squares[row * args.squares_stride], args.whole, args.eps));
            ForElements(0, args.group, [&](auto load, auto store) {
                const auto scaled = Simd::Mul(load(x), scale);
                store(y, args.weight == nullptr ? scaled : Simd::Mul(scaled, load(args.weight)));
            });
        });
    };
    dense::WithTypes(rows, args.x.type, args.y.type);
}

void NormGradInput(const dense::RmsNormGradArgs& args, int part, int parts) {
    const auto rows = [&](auto dy_type, auto x_type, auto dx_type) {
        ForGroups(args.rows, args.cols, args.group, part, parts, [&](int64_t row, int64_t column) {
            const auto* dy = args.dy.Row<decltype(dy_type)>(row) + column;
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            auto* dx = args.dx.Row<decltype(dx_type)>(row) + column;
            const float inverse = InverseRms(x, args.group, args.eps);
            if (args.inverse != nullptr) {
                args.inverse[(row * args.cols + column) / args.group] = inverse;
            }
            const auto weigh = [&](auto load) {
                return args.weight == nullptr ? load(dy) : Simd::Mul(load(dy), load(args.weight));
            };
            auto along = Simd::Zero();  // sum of dy * w * x
            ForElements(0, args.group,
                        [&](auto load, auto) { along = Simd::Fma(weigh(load), load(x), along); });
            const auto scale = Simd::Set(inverse);
            const auto pull =
                Simd::Set(inverse * inverse * Simd::Sum(along) / static_cast<float>(args.group));
            ForElements(0, args.group, [&](auto load, auto store) {
                store(dx, Simd::Mul(scale, Simd::Fnma(load(x), pull, weigh(load))));
            });
        });
    };
    dense::WithTypes(rows, args.dy.type, args.x.type, args.dx.type);
}

void NormGradWeight(const dense::RmsNormGradArgs& args, int part, int parts) {
    const Range share = Share(args.group, 16, part, parts);
    if (share.begin == share.end) return;
    const auto rows = [&](auto dy_type, auto x_type) {
        ForGroups(args.rows, args.cols, args.group, 0, 1, [&](int64_t row, int64_t column) {
            const auto* dy = args.dy.Row<decltype(dy_type)>(row) + column;
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            const auto scale = Simd::Set(args.inverse != nullptr
                                             ? args.inverse[(row * args.cols + column) / args.group]
                                             : InverseRms(x, args.group, args.eps));
            ForElements(share.begin, share.end, [&](auto load, auto store) {
                const auto product = Simd::Mul(load(dy), load(x));
                store(args.dw, Simd::Fma(product, scale, load(args.dw)));
            });
        });
    };
    dense::WithTypes(rows, args.dy.type, args.x.type);
}

// One gated unit; `u` of tensor/activation.h is passed through the same sigmoid for all
// activations.
template <Activation activation>
inline Float Gated(Float gate, Float up) {
    Float minus_u = Simd::Sub(Simd::Zero(), gate);
    if constexpr (activation == Activation::kGeluTanh) {
        const Float cube = Simd::Mul(Simd::Mul(gate, gate), gate);
        minus_u = Simd::Mul(Simd::Set(-1.5957691216f), Simd::Fma(Simd::Set(0.044715f), cube, gate));
    }
    if constexpr (activation == Activation::kClampedSilu) {
        gate = Simd::Min(Simd::Set(7.0f), gate);
        minus_u = Simd::Mul(Simd::Set(-1.702f), gate);
        up =
            Simd::Add(Simd::Min(Simd::Set(7.0f), Simd::Max(Simd::Set(-7.0f), up)), Simd::Set(1.0f));
    }
    const Float below = Simd::Add(Simd::Set(1.0f), Exp(minus_u));
    return Simd::Mul(Simd::Div(gate, below), up);
}

template <Activation kActivation, bool kLimited = false>
void GluOf(const dense::GluArgs& args, int part, int parts) {
    const auto most = Simd::Set(args.limit), least = Simd::Set(-args.limit), one = Simd::Set(1.0f);
    const auto most_gate =
        Simd::Set(args.limits_gate ? args.limit : std::numeric_limits<float>::infinity());
    const auto rows = [&](auto type) {
        using T = decltype(type);
        ForRows(args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const T *gate = args.gate.Row<T>(row), *up = args.up.Row<T>(row);
            T* out = args.out.Row<T>(row);
            ForElements(begin, end, [&](auto load, auto store) {
                if constexpr (kLimited) {
                    const Float below = Simd::Min(most_gate, load(gate));
                    const Float open = Simd::Min(most, Gated<kActivation>(below, one));
                    store(out, Simd::Mul(open, Simd::Min(most, Simd::Max(least, load(up)))));
                } else {
                    store(out, Gated<kActivation>(load(gate), load(up)));
                }
            });
        });
    };
    dense::WithTypes(rows, args.gate.type);
}

void Glu(const dense::GluArgs& args, int part, int parts) {
    WEFT_CHECK(args.up.type == args.gate.type && args.out.type == args.gate.type);
    if (args.limit != 0) return GluOf<Activation::kSilu, true>(args, part, parts);
    switch (args.activation) {
        case Activation::kSilu: return GluOf<Activation::kSilu>(args, part, parts);
        case Activation::kGeluTanh: return GluOf<Activation::kGeluTanh>(args, part, parts);
        case Activation::kClampedSilu: return GluOf<Activation::kClampedSilu>(args, part, parts);
    }
}

// One gated unit's gradients: of up and of the gate.
template <bool kGelu>
struct GatedGrad {
    GatedGrad(Float dout, Float gate, Float up) {
        const Float one = Simd::Set(1.0f), twice_root = Simd::Set(1.5957691216f);  // sqrt(8 / pi)
        Float u = gate, slope = gate;  // gate times the derivative of u
        if constexpr (kGelu) {
            const Float square = Simd::Mul(Simd::Mul(Simd::Set(0.044715f), gate), gate);
            const Float scaled = Simd::Mul(twice_root, gate);
            u = Simd::Fma(scaled, square, scaled);
            slope = Simd::Fma(Simd::Mul(Simd::Set(3.0f), scaled), square, scaled);
        }
        const Float below = Simd::Add(one, Exp(Simd::Sub(Simd::Zero(), u)));
        const Float sigmoid = Simd::Div(one, below);
        const Float passed = Simd::Mul(dout, sigmoid);
        const Float turn = Simd::Fma(slope, Simd::Sub(one, sigmoid), one);
        dup = Simd::Mul(passed, gate);
        dgate = Simd::Mul(Simd::Mul(passed, up), turn);
    }
    Float dup, dgate;
};

template <bool kGelu>
void GluGradOf(const dense::GluGradArgs& args, int part, int parts) {
    const auto rows = [&](auto type) {
        using T = decltype(type);
        ForRows(args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const T* dout = args.dout.Row<T>(row);
            const T *gate = args.gate.Row<T>(row), *up = args.up.Row<T>(row);
            T *dgate = args.dgate.Row<T>(row), *dup = args.dup.Row<T>(row);
            ForElements(begin, end, [&](auto load, auto store) {
                const GatedGrad<kGelu> grad(load(dout), load(gate), load(up));
                store(dup, grad.dup);
                store(dgate, grad.dgate);
            });
        });
    };
    dense::WithTypes(rows, args.dout.type);
}

void GluGrad(const dense::GluGradArgs& args, int part, int parts) {
    const dense::Element type = args.dout.type;
    WEFT_CHECK(args.gate.type == type && args.up.type == type && args.dgate.type == type &&
               args.dup.type == type);
    WEFT_CHECK(args.activation != Activation::kClampedSilu);
    args.activation == Activation::kGeluTanh ? GluGradOf<true>(args, part, parts)
                                             : GluGradOf<false>(args, part, parts);
}

// A rotation: (first, second) becomes (first * c - second * s, second * c + first * s).
struct Rotated {
    Rotated(Float first, Float second, Float c, Float s)
        : a(Simd::Fnma(second, s, Simd::Mul(first, c))),
          b(Simd::Fma(first, s, Simd::Mul(second, c))) {}
    Float a, b;
};

template <typename T>
inline void RotateHalves(const T* x, const float* cosine, const float* sine, float sign,
                         int64_t pairs, T* y) {
    const auto signs = Simd::Set(sign);
    ForVectors(
        0, pairs,
        [&](int64_t i) {
            const Rotated r(Simd::Load(x + i), Simd::Load(x + pairs + i), Simd::Load(cosine + i),
                            Simd::Mul(signs, Simd::Load(sine + i)));
            Simd::Store(y + i, r.a);
            Simd::Store(y + pairs + i, r.b);
        },
        [&](int64_t i, int64_t left) {
            const Rotated r(Simd::LoadFirst(x + i, left), Simd::LoadFirst(x + pairs + i, left),
                            Simd::LoadFirst(cosine + i, left),
                            Simd::Mul(signs, Simd::LoadFirst(sine + i, left)));
            Simd::StoreFirst(y + i, r.a, left);
            Simd::StoreFirst(y + pairs + i, r.b, left);
        });
}

template <typename T>
inline void RotateNeighbours(const T* x, const float* cosine, const float* sine, float sign,
                             int64_t pairs, T* y) {
    const Float signs = Simd::Set(sign);
    const auto rotate = [&](Float low, Float high, Float c, Float s, Float* low_out,
                            Float* high_out) {
        Float first, second;
        Simd::Unzip(low, high, &first, &second);
        const Rotated r(first, second, c, Simd::Mul(signs, s));
        Simd::Zip(r.a, r.b, low_out, high_out);
    };
    ForVectors(
        0, pairs,
        [&](int64_t i) {
            Float low, high;
            rotate(Simd::Load(x + 2 * i), Simd::Load(x + 2 * i + Simd::kLanes),
                   Simd::Load(cosine + i), Simd::Load(sine + i), &low, &high);
            Simd::Store(y + 2 * i, low);
            Simd::Store(y + 2 * i + Simd::kLanes, high);
        },
        [&](int64_t i, int64_t left) {
            T pair[2 * Simd::kLanes] = {};
            std::memcpy(pair, x + 2 * i, static_cast<size_t>(2 * left) * sizeof(T));
            Float low, high;
            rotate(Simd::Load(pair), Simd::Load(pair + Simd::kLanes),
                   Simd::LoadFirst(cosine + i, left), Simd::LoadFirst(sine + i, left), &low, &high);
            Simd::Store(pair, low);
            Simd::Store(pair + Simd::kLanes, high);
            std::memcpy(y + 2 * i, pair, static_cast<size_t>(2 * left) * sizeof(T));
        });
}

void Rope(const dense::RopeArgs& args, int part, int parts) {
    WEFT_CHECK(args.x.type == args.y.type);
    const int64_t pairs = args.rotary_dim / 2;
    const int64_t first = args.last ? args.head_dim - args.rotary_dim : 0;
    const auto rows = [&](auto type) {
        using T = decltype(type);
        ForGroups(args.rows, args.heads * args.head_dim, args.head_dim, part, parts,
                  [&](int64_t row, int64_t column) {
                      const T* head = args.x.Row<T>(row) + column;
                      T* out = args.y.Row<T>(row) + column;
                      const T* x = head + first;
                      T* y = out + first;
                      const float* cosine = args.cos_sin + row * args.rotary_dim;
                      args.neighbours
                          ? RotateNeighbours(x, cosine, cosine + pairs, args.sign, pairs, y)
                          : RotateHalves(x, cosine, cosine + pairs, args.sign, pairs, y);
                      if (x == y) return;
                      std::copy(head, x, out);
                      std::copy(x + args.rotary_dim, head + args.head_dim, y + args.rotary_dim);
                  });
    };
    dense::WithTypes(rows, args.x.type);
}

void Add(const dense::AddArgs& args, int part, int parts) {
    const auto rows = [&](auto a_type, auto b_type, auto y_type) {
        ForRows(args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const auto* a = args.a.Row<decltype(a_type)>(row);
            const auto* b = args.b.Row<decltype(b_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements(begin, end,
                        [&](auto load, auto store) { store(y, Simd::Add(load(a), load(b))); });
        });
    };
    dense::WithTypes(rows, args.a.type, args.b.type, args.y.type);
}

void AddBias(const dense::AddBiasArgs& args, int part, int parts) {
    const auto rows = [&](auto x_type, auto y_type) {
        ForRows(args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const auto* x = args.x.Row<decltype(x_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements(begin, end, [&](auto load, auto store) {
                store(y, Simd::Add(load(x), load(args.bias)));
            });
        });
    };
    dense::WithTypes(rows, args.x.type, args.y.type);
}

void BiasGrad(const dense::BiasGradArgs& args, int part, int parts) {
    const Range share = Share(args.cols, 16, part, parts);
    const auto rows = [&](auto type) {
        for (int64_t row = 0; row < args.rows; ++row) {
            const auto* dy = args.dy.Row<decltype(type)>(row);
            ForElements(share.begin, share.end, [&](auto load, auto store) {
                store(args.db, Simd::Add(load(args.db), load(dy)));
            });
        }
    };
    dense::WithTypes(rows, args.dy.type);
}

void Scale(const dense::ScaleArgs& args, int part, int parts) {
    const auto rows = [&](auto x_type, auto y_type) {
        ForRows(args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const auto factor = Simd::Set(args.FactorOf(row));
            const auto* x = args.x.Row<decltype(x_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements(begin, end,
                        [&](auto load, auto store) { store(y, Simd::Mul(factor, load(x))); });
        });
    };
    dense::WithTypes(rows, args.x.type, args.y.type);
}

void SoftCap(const SoftCapArgs& args, int part, int parts) {
    const auto cap = Simd::Set(args.cap);
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    ForElements(share.begin, share.end, [&](auto load, auto store) {
        store(args.y, Simd::Mul(cap, Tanh(Simd::Div(load(args.x), cap))));
    });
}

inline float LargestOf(const float* x, int64_t count) {
    auto most = Simd::Set(x[0]);
    ForVectors(
        0, count, [&](int64_t i) { most = Simd::Max(Simd::Load(x + i), most); },
        [&](int64_t i, int64_t left) {
            const auto last = Simd::LoadFirst(x + i, left);
            most = Simd::Max(Simd::Select(left, last, most), most);
        });
    return Simd::Largest(most);
}

inline float SumOf(const float* x, int64_t count) {
    Float sum = Simd::Zero();
    ForElements(0, count, [&](auto load, auto) { sum = Simd::Add(sum, load(x)); });
    return Simd::Sum(sum);
}

// The sum of e^(x - largest).
inline float SumOfExp(const float* x, int64_t count, float largest) {
    const Float shift = Simd::Set(largest);
    Float sum = Simd::Zero();
    ForVectors(
        0, count,
        [&](int64_t i) { sum = Simd::Add(sum, Exp(Simd::Sub(Simd::Load(x + i), shift))); },
        [&](int64_t i, int64_t left) {
            const Float e = Exp(Simd::Sub(Simd::LoadFirst(x + i, left), shift));
            sum = Simd::Add(sum, Simd::Select(left, e, Simd::Zero()));
        });
    return Simd::Sum(sum);
}

void SoftmaxStats(const dense::SoftmaxStatsArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* logits = args.logits + row * args.cols;
        const int64_t target = args.targets[row] - args.first;
        float* stats = args.stats + row * args.each();
        stats[0] = LargestOf(logits, args.cols);
        stats[1] = SumOfExp(logits, args.cols, stats[0]);
        const bool own = args.targets[row] >= 0 && target >= 0 && target < args.cols;
        stats[2] = own ? logits[target] : 0.0f;
        if (args.sums) stats[3] = SumOf(logits, args.cols);
    }
}

void CrossEntropyGrad(const dense::CrossEntropyGradArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* logits = args.logits + row * args.cols;
        if (args.targets[row] < 0) {
            std::fill_n(logits, args.cols, 0.0f);
            continue;
        }
        const dense::SoftmaxTotal total = dense::TotalOf(
            args.stats + row * args.ranks * args.terms.stats(), args.ranks, args.terms);
        const dense::SoftmaxSlope slope = dense::SlopeOf(total, args.dloss[row], args.terms);
        const auto factor = Simd::Set(slope.factor), shift = Simd::Set(total.largest);
        const auto share = Simd::Set(-slope.share);
        ForElements(0, args.cols, [&](auto load, auto store) {
            store(logits, Simd::Fma(Exp(Simd::Sub(load(logits), shift)), factor, share));
        });
        const int64_t target = args.targets[row] - args.first;
        if (target >= 0 && target < args.cols) logits[target] -= slope.chosen;
    }
}

void SoftCapGrad(const dense::SoftCapGradArgs& args, int part, int parts) {
    const auto cap = Simd::Set(args.cap), one = Simd::Set(1);
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    ForElements(share.begin, share.end, [&](auto load, auto store) {
        const Float t = Tanh(Simd::Div(load(args.x), cap));
        store(args.dx, Simd::Mul(load(args.dy), Simd::Sub(one, Simd::Mul(t, t))));
    });
}

void Adam(const dense::AdamArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    const Float beta1 = Simd::Set(args.beta1), beta2 = Simd::Set(args.beta2);
    const Float rest1 = Simd::Set(1 - args.beta1), rest2 = Simd::Set(1 - args.beta2);
    const Float kept = Simd::Set(1 - args.rate * args.decay);
    const Float step = Simd::Set(args.rate / args.correction1);
    const Float root = Simd::Set(1.0f / __builtin_sqrtf(args.correction2));
    const Float eps = Simd::Set(args.eps), grad_scale = Simd::Set(args.grad_scale);
    const Float l2 = Simd::Set(args.l2);
    const auto update = [&](auto type, auto copy_type) {
        const auto* gradients = static_cast<const decltype(type)*>(args.g);
        auto* copy = static_cast<decltype(copy_type)*>(args.copy);
        ForElements(share.begin, share.end, [&](auto load, auto store) {
            const Float g = Simd::Fma(l2, load(args.p), Simd::Mul(load(gradients), grad_scale));
            const Float m = Simd::Fma(beta1, load(args.m), Simd::Mul(rest1, g));
            const Float v = Simd::Fma(beta2, load(args.v), Simd::Mul(Simd::Mul(rest2, g), g));
            const Float below = Simd::Fma(Simd::Sqrt(v), root, eps);
            const Float change = Simd::Div(Simd::Mul(step, m), below);
            const Float p = Simd::Sub(Simd::Mul(load(args.p), kept), change);
            store(args.m, m);
            store(args.v, v);
            store(args.p, p);
            if (copy != nullptr) store(copy, p);
        });
    };
    dense::WithTypes(update, args.g_type, args.copy_type);
}

void Sgd(const dense::SgdArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    const Float momentum = Simd::Set(args.momentum), taken = Simd::Set(args.taken);
    const Float rate = Simd::Set(args.rate), l2 = Simd::Set(args.l2);
    const Float grad_scale = Simd::Set(args.grad_scale);
    const auto update = [&](auto type, auto copy_type) {
        const auto* gradients = static_cast<const decltype(type)*>(args.g);
        auto* copy = static_cast<decltype(copy_type)*>(args.copy);
        ForElements(share.begin, share.end, [&](auto load, auto store) {
            const Float g = Simd::Fma(l2, load(args.p), Simd::Mul(load(gradients), grad_scale));
            Float change = g;
            if (args.b != nullptr) {
                const Float b = Simd::Fma(momentum, load(args.b), Simd::Mul(taken, g));
                store(args.b, b);
                change = args.nesterov ? Simd::Fma(momentum, b, g) : b;
            }
            const Float p = Simd::Fnma(rate, change, load(args.p));
            store(args.p, p);
            if (copy != nullptr) store(copy, p);
        });
    };
    dense::WithTypes(update, args.g_type, args.copy_type);
}

}  // namespace

void SetRows(Kernels& table) {
    static_cast<dense::RowKernels&>(table) = {
        .rms_norm = Norm,
        .norm_grad_input = NormGradInput,
        .norm_grad_weight = NormGradWeight,
        .glu = Glu,
        .glu_grad = GluGrad,
        .rope = Rope,
        .add = Add,
        .add_bias = AddBias,
        .bias_grad = BiasGrad,
        .scale = Scale,
        .softmax_stats = SoftmaxStats,
        .cross_entropy_grad = CrossEntropyGrad,
        .soft_cap_grad = SoftCapGrad,
        .adam = Adam,
        .sgd = Sgd,
    };
    table.soft_cap = SoftCap;
}

}  // namespace weft::kernels::WEFT_SET
