// The kernels of dense/rows.h, written once for vectors of any width. Simd is the type of an
// instruction set that reads and writes every element type (avx2/lanes.h, avx512/lanes.h).
#pragma once

#include <cmath>

#include "kernels/dense/rows.h"
#include "kernels/vector_ops.h"

namespace weft::kernels::dense {

// Calls on(load, store) for each vector of [begin, end): load(x) gives x[i..], zeros behind the
// end; store(y, value) leaves what is behind the end.
template <typename Simd, typename On>
inline void ForElements(int64_t begin, int64_t end, On on) {
    using Float = typename Simd::Float;
    ForVectors<Simd>(
        begin, end,
        [&](int64_t i) {
            on([i](const auto* x) { return Simd::Load(x + i); },
               [i](auto* y, Float value) { Simd::Store(y + i, value); });
        },
        [&](int64_t i, int64_t left) {
            on([i, left](const auto* x) { return Simd::LoadFirst(x + i, left); },
               [i, left](auto* y, Float value) { Simd::StoreFirst(y + i, value, left); });
        });
}

// Calls on(row, column) for each group of this part's rows.
template <typename On>
inline void ForGroups(int64_t rows, int64_t cols, int64_t group, int part, int parts, On on) {
    const Range share = Share(rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        for (int64_t column = 0; column < cols; column += group) on(row, column);
    }
}

template <typename Simd, typename T>
inline float InverseRms(const T* x, int64_t count, float eps) {
    const float mean = SumOfSquares<Simd>(x, count) / static_cast<float>(count);
    return 1.0f / __builtin_sqrtf(mean + eps);
}

template <typename Simd>
void Norm(const RmsNormArgs& args, int part, int parts) {
    const auto rows = [&](auto x_type, auto y_type) {
        ForGroups(args.rows, args.cols, args.group, part, parts, [&](int64_t row, int64_t column) {
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            auto* y = args.y.Row<decltype(y_type)>(row) + column;
            const auto scale = Simd::Set(InverseRms<Simd>(x, args.group, args.eps));
            ForElements<Simd>(0, args.group, [&](auto load, auto store) {
                const auto scaled = Simd::Mul(load(x), scale);
                store(y, args.weight == nullptr ? scaled : Simd::Mul(scaled, load(args.weight)));
            });
        });
    };
    WithTypes(rows, args.x.type, args.y.type);
}

template <typename Simd>
void NormGradInput(const RmsNormGradArgs& args, int part, int parts) {
    const auto rows = [&](auto dy_type, auto x_type, auto dx_type) {
        ForGroups(args.rows, args.cols, args.group, part, parts, [&](int64_t row, int64_t column) {
            const auto* dy = args.dy.Row<decltype(dy_type)>(row) + column;
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            auto* dx = args.dx.Row<decltype(dx_type)>(row) + column;
            const float inverse = InverseRms<Simd>(x, args.group, args.eps);
            if (args.inverse != nullptr) {
                args.inverse[(row * args.cols + column) / args.group] = inverse;
            }
            auto along = Simd::Zero();  // sum of dy * w * x
            ForElements<Simd>(0, args.group, [&](auto load, auto) {
                along = Simd::Fma(Simd::Mul(load(dy), load(args.weight)), load(x), along);
            });
            const auto scale = Simd::Set(inverse);
            const auto pull =
                Simd::Set(inverse * inverse * Simd::Sum(along) / static_cast<float>(args.group));
            ForElements<Simd>(0, args.group, [&](auto load, auto store) {
                const auto weighted = Simd::Mul(load(dy), load(args.weight));
                store(dx, Simd::Mul(scale, Simd::Fnma(load(x), pull, weighted)));
            });
        });
    };
    WithTypes(rows, args.dy.type, args.x.type, args.dx.type);
}

template <typename Simd>
void NormGradWeight(const RmsNormGradArgs& args, int part, int parts) {
    const Range share = Share(args.group, 16, part, parts);
    if (share.begin == share.end) return;
    const auto rows = [&](auto dy_type, auto x_type) {
        ForGroups(args.rows, args.cols, args.group, 0, 1, [&](int64_t row, int64_t column) {
            const auto* dy = args.dy.Row<decltype(dy_type)>(row) + column;
            const auto* x = args.x.Row<decltype(x_type)>(row) + column;
            const auto scale =
                Simd::Set(args.inverse != nullptr
                              ? args.inverse[(row * args.cols + column) / args.group]
                              : InverseRms<Simd>(x, args.group, args.eps));
            ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
                const auto product = Simd::Mul(load(dy), load(x));
                store(args.dw, Simd::Fma(product, scale, load(args.dw)));
            });
        });
    };
    WithTypes(rows, args.dy.type, args.x.type);
}

template <typename Simd, Activation kActivation>
void GluOf(const GluArgs& args, int part, int parts) {
    const auto rows = [&](auto type) {
        using T = decltype(type);
        const Range share = Share(args.rows, 1, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const T *gate = args.gate.Row<T>(row), *up = args.up.Row<T>(row);
            T* out = args.out.Row<T>(row);
            ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
                store(out, Gated<Simd, kActivation>(load(gate), load(up)));
            });
        }
    };
    WithTypes(rows, args.gate.type);
}

template <typename Simd>
void Glu(const GluArgs& args, int part, int parts) {
    WEFT_CHECK(args.up.type == args.gate.type && args.out.type == args.gate.type);
    switch (args.activation) {
        case Activation::kSilu: return GluOf<Simd, Activation::kSilu>(args, part, parts);
        case Activation::kGeluTanh: return GluOf<Simd, Activation::kGeluTanh>(args, part, parts);
        case Activation::kClampedSilu:
            return GluOf<Simd, Activation::kClampedSilu>(args, part, parts);
    }
}

// One gated unit's gradients: of up and of the gate.
template <typename Simd, bool kGelu>
struct GatedGrad {
    using Float = typename Simd::Float;
    GatedGrad(Float dout, Float gate, Float up) {
        const Float one = Simd::Set(1.0f), twice_root = Simd::Set(1.5957691216f);  // sqrt(8 / pi)
        Float u = gate, slope = gate;  // gate times the slope of u
        if constexpr (kGelu) {
            const Float square = Simd::Mul(Simd::Mul(Simd::Set(0.044715f), gate), gate);
            const Float scaled = Simd::Mul(twice_root, gate);
            u = Simd::Fma(scaled, square, scaled);
            slope = Simd::Fma(Simd::Mul(Simd::Set(3.0f), scaled), square, scaled);
        }
        const Float below = Simd::Add(one, Exp<Simd>(Simd::Sub(Simd::Zero(), u)));
        const Float sigmoid = Simd::Div(one, below);
        const Float passed = Simd::Mul(dout, sigmoid);
        const Float turn = Simd::Fma(slope, Simd::Sub(one, sigmoid), one);
        dup = Simd::Mul(passed, gate);
        dgate = Simd::Mul(Simd::Mul(passed, up), turn);
    }
    Float dup, dgate;
};

template <typename Simd, bool kGelu>
void GluGradOf(const GluGradArgs& args, int part, int parts) {
    const auto rows = [&](auto type) {
        using T = decltype(type);
        const Range share = Share(args.rows, 1, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const T* dout = args.dout.Row<T>(row);
            const T *gate = args.gate.Row<T>(row), *up = args.up.Row<T>(row);
            T *dgate = args.dgate.Row<T>(row), *dup = args.dup.Row<T>(row);
            ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
                const GatedGrad<Simd, kGelu> grad(load(dout), load(gate), load(up));
                store(dup, grad.dup);
                store(dgate, grad.dgate);
            });
        }
    };
    WithTypes(rows, args.dout.type);
}

template <typename Simd>
void GluGrad(const GluGradArgs& args, int part, int parts) {
    const Element type = args.dout.type;
    WEFT_CHECK(args.gate.type == type && args.up.type == type && args.dgate.type == type &&
               args.dup.type == type);
    WEFT_CHECK(args.activation != Activation::kClampedSilu);
    args.activation == Activation::kGeluTanh ? GluGradOf<Simd, true>(args, part, parts)
                                             : GluGradOf<Simd, false>(args, part, parts);
}

template <typename Simd>
void Rope(const RopeArgs& args, int part, int parts) {
    WEFT_CHECK(args.x.type == args.y.type);
    const int64_t pairs = args.rotary_dim / 2;
    const auto rows = [&](auto type) {
        using T = decltype(type);
        ForGroups(args.rows, args.heads * args.head_dim, args.head_dim, part, parts,
                  [&](int64_t row, int64_t column) {
                      const T* x = args.x.Row<T>(row) + column;
                      T* y = args.y.Row<T>(row) + column;
                      const float* cosine = args.cos_sin + row * args.rotary_dim;
                      args.neighbours
                          ? RotateNeighbours<Simd>(x, cosine, cosine + pairs, args.sign, pairs, y)
                          : RotateHalves<Simd>(x, cosine, cosine + pairs, args.sign, pairs, y);
                      if (x == y) return;
                      std::copy(x + args.rotary_dim, x + args.head_dim, y + args.rotary_dim);
                  });
    };
    WithTypes(rows, args.x.type);
}

template <typename Simd>
void Add(const AddArgs& args, int part, int parts) {
    const auto rows = [&](auto a_type, auto b_type, auto y_type) {
        const Range share = Share(args.rows, 1, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const auto* a = args.a.Row<decltype(a_type)>(row);
            const auto* b = args.b.Row<decltype(b_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
                store(y, Simd::Add(load(a), load(b)));
            });
        }
    };
    WithTypes(rows, args.a.type, args.b.type, args.y.type);
}

template <typename Simd>
void AddBias(const AddBiasArgs& args, int part, int parts) {
    const auto rows = [&](auto x_type, auto y_type) {
        const Range share = Share(args.rows, 1, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const auto* x = args.x.Row<decltype(x_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
                store(y, Simd::Add(load(x), load(args.bias)));
            });
        }
    };
    WithTypes(rows, args.x.type, args.y.type);
}

template <typename Simd>
void BiasGrad(const BiasGradArgs& args, int part, int parts) {
    const Range share = Share(args.cols, 16, part, parts);
    const auto rows = [&](auto type) {
        for (int64_t row = 0; row < args.rows; ++row) {
            const auto* dy = args.dy.Row<decltype(type)>(row);
            ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
                store(args.db, Simd::Add(load(args.db), load(dy)));
            });
        }
    };
    WithTypes(rows, args.dy.type);
}

template <typename Simd>
void Scale(const ScaleArgs& args, int part, int parts) {
    const auto factor = Simd::Set(args.factor);
    const auto rows = [&](auto x_type, auto y_type) {
        const Range share = Share(args.rows, 1, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            const auto* x = args.x.Row<decltype(x_type)>(row);
            auto* y = args.y.Row<decltype(y_type)>(row);
            ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
                store(y, Simd::Mul(factor, load(x)));
            });
        }
    };
    WithTypes(rows, args.x.type, args.y.type);
}

// The largest of x.
template <typename Simd>
inline float LargestOf(const float* x, int64_t count) {
    auto most = Simd::Set(x[0]);
    ForVectors<Simd>(
        0, count, [&](int64_t i) { most = Simd::Max(Simd::Load(x + i), most); },
        [&](int64_t i, int64_t left) {
            const auto last = Simd::LoadFirst(x + i, left);
            most = Simd::Max(Simd::Select(left, last, most), most);
        });
    return Simd::Largest(most);
}

// x becomes e^(x - largest); gives the sum.
template <typename Simd>
inline float SumOfExp(float* x, int64_t count, float largest) {
    using Float = typename Simd::Float;
    const Float shift = Simd::Set(largest);
    Float sum = Simd::Zero();
    ForVectors<Simd>(
        0, count,
        [&](int64_t i) {
            const Float e = Exp<Simd>(Simd::Sub(Simd::Load(x + i), shift));
            Simd::Store(x + i, e);
            sum = Simd::Add(sum, e);
        },
        [&](int64_t i, int64_t left) {
            const Float e = Exp<Simd>(Simd::Sub(Simd::LoadFirst(x + i, left), shift));
            Simd::StoreFirst(x + i, e, left);
            sum = Simd::Add(sum, Simd::Select(left, e, Simd::Zero()));
        });
    return Simd::Sum(sum);
}

template <typename Simd>
void Loss(const LossArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* logits = args.logits + row * args.logits_stride;
        const int32_t target = args.targets[row];
        if (target < 0) {
            std::fill_n(logits, args.cols, 0.0f);
            args.losses[row] = 0;
            continue;
        }
        const float chosen = logits[target];
        const float largest = LargestOf<Simd>(logits, args.cols);
        const float sum = SumOfExp<Simd>(logits, args.cols, largest);
        args.losses[row] = std::log(sum) + (largest - chosen);
        const auto factor = Simd::Set(args.dloss / sum);
        ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
            store(logits, Simd::Mul(load(logits), factor));
        });
        logits[target] -= args.dloss;
    }
}

template <typename Simd>
void Adam(const AdamArgs& args, int part, int parts) {
    using Float = typename Simd::Float;
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
        ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
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
    WithTypes(update, args.g_type, args.copy_type);
}

template <typename Simd>
void Sgd(const SgdArgs& args, int part, int parts) {
    using Float = typename Simd::Float;
    const Range share = Share(args.count, 16, part, parts);
    const Float momentum = Simd::Set(args.momentum), taken = Simd::Set(args.taken);
    const Float rate = Simd::Set(args.rate), l2 = Simd::Set(args.l2);
    const Float grad_scale = Simd::Set(args.grad_scale);
    const auto update = [&](auto type, auto copy_type) {
        const auto* gradients = static_cast<const decltype(type)*>(args.g);
        auto* copy = static_cast<decltype(copy_type)*>(args.copy);
        ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
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
    WithTypes(update, args.g_type, args.copy_type);
}

template <typename Simd>
struct VectorRows {
    static constexpr RowKernels kKernels = {
        .rms_norm = Norm<Simd>,
        .norm_grad_input = NormGradInput<Simd>,
        .norm_grad_weight = NormGradWeight<Simd>,
        .glu = Glu<Simd>,
        .glu_grad = GluGrad<Simd>,
        .rope = Rope<Simd>,
        .add = Add<Simd>,
        .add_bias = AddBias<Simd>,
        .bias_grad = BiasGrad<Simd>,
        .scale = Scale<Simd>,
        .loss = Loss<Simd>,
        .adam = Adam<Simd>,
        .sgd = Sgd<Simd>,
    };
};

}  // namespace weft::kernels::dense
