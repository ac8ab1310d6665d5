#include "backend/cpu/training_update.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "tensor/dynamic_codes.h"
#include "tensor/half.h"
#include "tensor/half_rows.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;
using program::AdamUpdate;
using program::ElementRange;
using program::FactoredRun;
using program::FactoredTensor;
using program::UpdateRun;

// Sums over many elements go in blocks of so many, each by one thread, and then in order.
constexpr int64_t kBlock = 1 << 16;

double SquaresOf(const std::byte* from, int64_t count, DType dtype) {
    double sum = 0;
    if (dtype == DType::kF32) {
        const auto* x = reinterpret_cast<const float*>(from);
        for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * double{x[i]};
        return sum;
    }
    float block[1024];
    constexpr auto kMost = static_cast<int64_t>(std::size(block));
    for (int64_t at = 0; at < count; at += kMost) {
        const std::span<float> x(block, static_cast<size_t>(std::min(count - at, kMost)));
        WidenRow(dtype, from + 2 * at, x);
        for (const float value : x) sum += double{value} * double{value};
    }
    return sum;
}

// Calls f(get) with get(i), element i as a float times `scale`.
template <typename F>
void WithFloats(const TrainingOperand& from, double scale, const F& f) {
    const auto factor = static_cast<float>(scale);
    if (from.dtype == DType::kF32) {
        const float* x = from.floats();
        return f([x, factor](int64_t i) { return factor * x[i]; });
    }
    const auto* x = reinterpret_cast<const uint16_t*>(from.data);
    if (from.dtype == DType::kF16) {
        f([x, factor](int64_t i) { return factor * F16ToF32(x[i]); });
    } else {
        f([x, factor](int64_t i) { return factor * BF16ToF32(x[i]); });
    }
}

// Calls f(row, first column, end) for the rows [begin, end) of a run's block, as far as its range
// goes.
template <typename F>
void ForRowsOf(const FactoredRun& run, int64_t begin, int64_t end, const F& f) {
    for (int64_t row = begin; row < end; ++row) {
        const int64_t first = std::max(run.range.begin - row * run.col_count, int64_t{0});
        const int64_t last = std::min(run.range.end - row * run.col_count, run.col_count);
        if (first < last) f(row, first, last);
    }
}
// Rows of the block that the range touches.
kernels::Range RowsOfRun(const FactoredRun& run) {
    return {run.range.begin / run.col_count, (run.range.end + run.col_count - 1) / run.col_count};
}

// One op: an overload for each kind, its operands in the order of program/update.h.
struct Updater {
    const TrainingCall& call;
    const TrainingContext& context;
    const OpTeam& team;

    const TrainingOperand& in(size_t i) const { return call.in[i]; }
    const UpdateStep& step() const { return context.update; }
    kernels::Range Share(int64_t count, int64_t grain) const {
        return kernels::Share(count, grain, team.part, team.parts);
    }
    // The sums of work(i), i below `count`: each by one part, then in order.
    template <typename F>
    void AddInOrder(size_t count, double& sum, const F& work) const {
        std::vector<double>& sums = *context.sums;
        if (team.part == 0) sums.resize(count);
        team.barrier();
        for (auto i = static_cast<size_t>(team.part); i < count;
             i += static_cast<size_t>(team.parts)) {
            sums[i] = work(i);
        }
        team.barrier();
        if (team.part == 0) sum = std::accumulate(sums.begin(), sums.end(), sum);
        team.barrier();
    }

    void operator()(const program::AddSquares& a) const {
        std::vector<ElementRange> blocks;
        for (const ElementRange& range : a.ranges) {
            for (int64_t at = range.begin; at < range.end; at += kBlock) {
                blocks.push_back({at, std::min(at + kBlock, range.end)});
            }
        }
        AddInOrder(blocks.size(), in(1).doubles()[0], [&](size_t i) {
            const auto [begin, end] = blocks[i];
            return SquaresOf(in(0).data + RowBytes(in(0).dtype, begin), end - begin, in(0).dtype);
        });
    }

    // What the copy of the weights is, from element `begin` on; null where there is none.
    void SetCopy(size_t at, int64_t begin, void*& copy, dense::Element& type) const {
        if (at >= call.in.size()) return;
        copy = in(at).data + RowBytes(in(at).dtype, begin);
        type = in(at).element();
    }
    dense::AdamArgs AdamOf(const AdamUpdate& a, bool decays) const {
        const auto t = static_cast<double>(step().number);
        dense::AdamArgs args;
        args.rate = static_cast<float>(step().rate);
        args.beta1 = static_cast<float>(a.beta1);
        args.beta2 = static_cast<float>(a.beta2);
        args.eps = static_cast<float>(a.eps);
        args.correction1 = static_cast<float>(1 - std::pow(a.beta1, t));
        args.correction2 = static_cast<float>(1 - std::pow(a.beta2, t));
        args.grad_scale = static_cast<float>(step().gradient_scale);
        args.l2 = decays ? static_cast<float>(a.l2) : 0.0f;
        args.decay = decays ? static_cast<float>(a.decay) : 0.0f;
        args.g_type = in(0).element();
        return args;
    }
    // From element `begin` of the own part on; the copy is operand `copy`.
    void PointAt(dense::AdamArgs& args, int64_t begin, size_t copy) const {
        args.p = in(1).floats() + begin;
        args.g = in(0).data + RowBytes(in(0).dtype, begin);
        SetCopy(copy, begin, args.copy, args.copy_type);
    }
    void operator()(const AdamUpdate& a) const {
        for (const UpdateRun& run : a.runs) {
            dense::AdamArgs args = AdamOf(a, run.decays);
            PointAt(args, run.begin, 4);
            args.m = in(2).floats() + run.kept;
            args.v = in(3).floats() + run.kept;
            args.count = run.count;
            context.dense->adam(args, team.part, team.parts);
        }
    }
    void operator()(const program::Adam8bitUpdate& a) const {
        for (const UpdateRun& run : a.adam.runs) {
            dense::AdamArgs args = AdamOf(a.adam, run.decays);
            const int64_t blocks = (run.count + kStateBlock - 1) / kStateBlock;
            const kernels::Range share = Share(blocks, 1);
            for (int64_t block = share.begin; block < share.end; ++block) {
                const int64_t begin = run.begin + block * kStateBlock;
                PointAt(args, begin, 6);
                args.count = std::min(kStateBlock, run.begin + run.count - begin);
                UpdateBlock(args, begin);
            }
        }
    }
    // begin: a multiple of a block. Both moments are widened, updated and narrowed again.
    void UpdateBlock(dense::AdamArgs args, int64_t begin) const {
        const DynamicCodes* const codes[] = {&SignedCodes(), &UnsignedCodes()};
        const auto size = static_cast<size_t>(args.count);
        float wide[2][kStateBlock];
        const auto kept = [&](size_t i) {
            return std::span(reinterpret_cast<uint8_t*>(in(2 + i).data) + begin, size);
        };
        const auto scale = [&](size_t i) -> float& {
            return in(4 + i).floats()[begin / kStateBlock];
        };
        for (size_t i = 0; i < 2; ++i) {
            Widen(*codes[i], kept(i), scale(i), std::span(wide[i]).first(size));
        }
        args.m = wide[0];
        args.v = wide[1];
        context.dense->adam(args, 0, 1);
        for (size_t i = 0; i < 2; ++i) {
            scale(i) = Narrow(*codes[i], std::span(wide[i]).first(size), kept(i));
        }
    }
    void operator()(const program::SgdUpdate& a) const {
        const bool kept = a.momentum > 0;
        for (const UpdateRun& run : a.runs) {
            dense::SgdArgs args;
            args.p = in(1).floats() + run.begin;
            args.b = kept ? in(2).floats() + run.kept : nullptr;
            args.g = in(0).data + RowBytes(in(0).dtype, run.begin);
            args.g_type = in(0).element();
            args.count = run.count;
            args.rate = static_cast<float>(step().rate);
            args.momentum = static_cast<float>(a.momentum);
            // (As torch.optim.SGD: the first gradient is taken whole.)
            args.taken = step().number == 1 ? 1.0f : static_cast<float>(1 - a.dampening);
            args.l2 = run.decays ? static_cast<float>(a.l2) : 0.0f;
            args.nesterov = a.nesterov;
            args.grad_scale = static_cast<float>(step().gradient_scale);
            SetCopy(kept ? 3 : 2, run.begin, args.copy, args.copy_type);
            context.dense->sgd(args, team.part, team.parts);
        }
    }

    // ---- Adafactor ------------------------------------------------------------------------------

    // Threads share out rows for the sums of rows, and columns for those of columns: so no sum's
    // order depends on their number.
    void operator()(const program::AdafactorSums& a) const {
        double* const sums = in(2).doubles();
        for (const FactoredRun& run : a.runs) AddRun(run, sums);
        if (!a.sizes || team.part != 0) return;
        for (const FactoredRun& run : a.runs) {
            double& sum = sums[a.moments + run.tensor.number];
            const float* const weights = in(1).floats() + run.own;
            for (int64_t i = 0; i < run.range.end - run.range.begin; ++i) {
                sum += double{weights[i]} * double{weights[i]};
            }
        }
    }
    void AddRun(const FactoredRun& run, double* sums) const {
        const FactoredTensor& f = run.tensor;
        const kernels::Range all = RowsOfRun(run);
        const kernels::Range cols = Share(run.col_count, 16);
        const kernels::Range share = Share(all.end - all.begin, 1);
        WithFloats(in(0), step().gradient_scale, [&](const auto& get) {
            const auto square = [&](int64_t i) {
                const double g = get(run.own + i - run.range.begin);
                return g * g;
            };
            ForRowsOf(run, all.begin, all.end, [&](int64_t row, int64_t first, int64_t last) {
                double* const col_sums = sums + f.ColsOf(run.row_begin + row) + run.col_begin;
                const int64_t end = std::min(last, cols.end);
                for (int64_t c = std::max(first, cols.begin); c < end; ++c) {
                    col_sums[c] += square(row * run.col_count + c);
                }
            });
            if (f.rows == 0) return;
            ForRowsOf(run, all.begin + share.begin, all.begin + share.end,
                      [&](int64_t row, int64_t first, int64_t last) {
                          double sum = 0;
                          for (int64_t c = first; c < last; ++c) {
                              sum += square(row * run.col_count + c);
                          }
                          sums[f.rows_at + run.row_begin + row] += sum;
                      });
        });
    }

    // (Rows and columns are few beside elements: one thread's work.)
    void operator()(const program::AdafactorMoments& a) const {
        if (team.part != 0) return;
        const double kept = 1 - std::pow(static_cast<double>(step().number), a.decay_rate);
        const double* const sums = in(0).doubles();
        float *const moments = in(1).floats(), *const inverse = in(2).floats();
        const auto update = [&](int64_t at, double count) {
            const double mean = sums[at] / count + a.eps_square;
            moments[at] = static_cast<float>(kept * moments[at] + (1 - kept) * mean);
        };
        for (const FactoredTensor& f : a.tensors) {
            const int64_t cols = f.cols * f.matrices, rows_of_one = f.rows_of_one();
            std::vector<double> means(static_cast<size_t>(f.matrices));  // of rows, by matrix
            const auto mean_of = [&](int64_t row) -> double& {
                return means[static_cast<size_t>(row / rows_of_one)];
            };
            for (int64_t i = 0; i < f.rows; ++i) {
                update(f.rows_at + i, static_cast<double>(f.cols));
                mean_of(i) += moments[f.rows_at + i] / static_cast<double>(rows_of_one);
            }
            for (int64_t i = 0; i < cols; ++i) {
                update(f.cols_at + i, static_cast<double>(rows_of_one));
            }
            for (int64_t i = 0; i < f.rows; ++i) {
                const double row = moments[f.rows_at + i] / mean_of(i);
                inverse[f.rows_at + i] = static_cast<float>(1 / std::sqrt(row));
            }
            for (int64_t i = 0; i < cols; ++i) {
                const double col = moments[f.cols_at + i];
                inverse[f.cols_at + i] = static_cast<float>(1 / std::sqrt(col));
            }
        }
    }

    static float InverseRow(const FactoredRun& run, const float* inverse, int64_t row) {
        return run.tensor.rows == 0 ? 1.0f : inverse[run.tensor.rows_at + run.row_begin + row];
    }
    // Of the block's row, from its first column on.
    static const float* InverseCols(const FactoredRun& run, const float* inverse, int64_t row) {
        return inverse + run.tensor.ColsOf(run.row_begin + row) + run.col_begin;
    }
    // A row's sum is one thread's, and rows are added in their order.
    void operator()(const program::AdafactorSizes& a) const {
        const float* const inverse = in(1).floats();
        for (const FactoredRun& run : a.runs) {
            const kernels::Range all = RowsOfRun(run);
            const auto sum_of = [&](size_t i) {
                double scaled = 0;
                const int64_t begin = all.begin + static_cast<int64_t>(i);
                WithFloats(in(0), step().gradient_scale, [&](const auto& get) {
                    ForRowsOf(run, begin, begin + 1, [&](int64_t row, int64_t first, int64_t last) {
                        const double scale = InverseRow(run, inverse, row);
                        const float* const cols = InverseCols(run, inverse, row);
                        const int64_t at = run.own + row * run.col_count - run.range.begin;
                        double sum = 0;
                        for (int64_t c = first; c < last; ++c) {
                            const double u = get(at + c) * cols[c];
                            sum += u * u;
                        }
                        scaled = sum * scale * scale;
                    });
                });
                return scaled;
            };
            AddInOrder(static_cast<size_t>(all.end - all.begin), in(2).doubles()[run.tensor.number],
                       sum_of);
        }
    }

    // The rate before clipping.
    double RateOf(const program::AdafactorUpdate& a, const FactoredTensor& f) const {
        double rate = step().rate;
        if (a.relative_step) {
            rate = std::min(1e-2, 1 / std::sqrt(static_cast<double>(step().number)));
        }
        if (!a.scale_parameter) return rate;
        const double squares = in(2).doubles()[a.moments + f.number];
        return rate * std::max(a.eps_scale, std::sqrt(squares / f.elements()));
    }
    void operator()(const program::AdafactorUpdate& a) const {
        const float* const inverse = in(1).floats();
        float* const weights = in(4).floats();
        for (const FactoredRun& run : a.runs) {
            const double whole = RateOf(a, run.tensor);
            const double size =
                std::sqrt(in(3).doubles()[run.tensor.number] / run.tensor.elements());
            const auto rate = static_cast<float>(whole / std::max(1.0, size / a.clip_threshold));
            const auto kept = static_cast<float>(1 - (run.decays ? a.decay : 0.0) * whole);
            const kernels::Range all = RowsOfRun(run);
            const kernels::Range share = Share(all.end - all.begin, 1);
            const int64_t begin = all.begin + share.begin, end = all.begin + share.end;
            WithFloats(in(0), step().gradient_scale, [&](const auto& get) {
                ForRowsOf(run, begin, end, [&](int64_t row, int64_t first, int64_t last) {
                    const float scale = rate * InverseRow(run, inverse, row);
                    const float* const cols = InverseCols(run, inverse, row);
                    const int64_t at = run.own + row * run.col_count - run.range.begin;
                    for (int64_t c = first; c < last; ++c) {
                        float& p = weights[at + c];
                        p = p * kept - get(at + c) * cols[c] * scale;
                    }
                });
            });
            if (call.in.size() < 6) continue;
            const int64_t first = std::max(begin * run.col_count, run.range.begin);
            const int64_t last = std::min(end * run.col_count, run.range.end);
            const int64_t count = std::max(last - first, int64_t{0});
            const int64_t at = run.own + first - run.range.begin;
            const dense::ConstMatrix from{weights + at, count};
            const dense::Matrix to{in(5).data, count, in(5).element()};
            context.dense->scale({from, 1, count, 1, to.From(0, at)}, 0, 1);
        }
    }
};

}  // namespace

void ComputeUpdate(const TrainingCall& call, const TrainingContext& context, const OpTeam& team) {
    const Updater updater{call, context, team};
    call.op->attributes.Visit([&](const auto& a) {
        if constexpr (std::is_invocable_v<const Updater&, decltype(a)>) updater(a);
    });
}

}  // namespace weft::backend
