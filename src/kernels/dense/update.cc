#include "kernels/dense/update.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "tensor/dynamic_codes.h"
#include "tensor/half.h"
#include "tensor/half_rows.h"
#include "tensor/sgd.h"

namespace weft::kernels::dense {
namespace {

const std::byte* ElementAt(const void* x, Element type, int64_t i) {
    return static_cast<const std::byte*>(x) + i * ElementBytes(type);
}

// Elements from `begin` on as floats, as many as `room` holds: in place if they are float32, else
// converted into `room`.
const float* AsFloats(const void* x, Element type, int64_t begin, std::span<float> room) {
    if (type == Element::kF32) return static_cast<const float*>(x) + begin;
    WidenRow(type == Element::kF16 ? DType::kF16 : DType::kBF16, ElementAt(x, type, begin), room);
    return room.data();
}

// Calls f(floats) for elements [begin, begin + count) of x in order, up to 1024 at a time.
template <typename F>
void ForFloats(const void* x, Element type, int64_t begin, int64_t count, const F& f) {
    float widened[1024];
    constexpr auto kMost = static_cast<int64_t>(std::size(widened));
    for (int64_t done = 0; done < count; done += kMost) {
        const std::span some(widened, static_cast<size_t>(std::min(count - done, kMost)));
        f(std::span(AsFloats(x, type, begin + done, some), some.size()));
    }
}

// Calls f(block, first element, elements) for the part's blocks of the ranges.
template <typename F>
void ForBlocks(const ElementRange* ranges, int64_t count, int part, int parts, const F& f) {
    int64_t block = 0;
    for (int64_t r = 0; r < count; ++r) {
        for (int64_t at = ranges[r].begin; at < ranges[r].end; at += kSquaresBlock, ++block) {
            if (block % parts != part) continue;
            f(block, at, std::min(kSquaresBlock, ranges[r].end - at));
        }
    }
}

// Returns sum + the squares of elements [begin, begin + count), in order.
double SumOfSquares(const SquaresArgs& args, int64_t begin, int64_t count, double sum) {
    ForFloats(args.x, args.type, begin, count, [&](std::span<const float> floats) {
        for (const float x : floats) sum += double{x} * double{x};
    });
    return sum;
}

// In an ordered sum each addition waits for the one before. Summing several blocks side by side
// keeps the processor busy.
constexpr int kBlocksAtOnce = 4;
struct SquaredBlock {
    int64_t number = 0, begin = 0, elements = 0;
};
void SumBlocks(const SquaresArgs& args, const SquaredBlock (&blocks)[kBlocksAtOnce]) {
    constexpr int64_t kMost = 512;
    float widened[kBlocksAtOnce][kMost];
    double sums[kBlocksAtOnce] = {};
    int64_t common = blocks[0].elements;
    for (const SquaredBlock& block : blocks) common = std::min(common, block.elements);
    for (int64_t done = 0; done < common; done += kMost) {
        const int64_t count = std::min(common - done, kMost);
        const float* x[kBlocksAtOnce];
        for (int b = 0; b < kBlocksAtOnce; ++b) {
            const std::span room(widened[b], static_cast<size_t>(count));
            x[b] = AsFloats(args.x, args.type, blocks[b].begin + done, room);
        }
        for (int64_t i = 0; i < count; ++i) {
            for (int b = 0; b < kBlocksAtOnce; ++b) sums[b] += double{x[b][i]} * double{x[b][i]};
        }
    }
    for (int b = 0; b < kBlocksAtOnce; ++b) {
        const auto& [number, begin, elements] = blocks[b];
        args.blocks[number] = SumOfSquares(args, begin + common, elements - common, sums[b]);
    }
}

// ---- Pairs of floats (Dekker 1971; Knuth, The Art of Computer Programming 2, 4.2.2) ------------

// a + b exactly: the rounded sum and its error.
FloatPair TwoSum(float a, float b) {
    const float sum = a + b, of_b = sum - a;
    return {sum, (a - (sum - of_b)) + (b - of_b)};
}
// As TwoSum, if a is not less than b in magnitude.
FloatPair FastTwoSum(float a, float b) {
    const float sum = a + b;
    return {sum, b - (sum - a)};
}
FloatPair AddPairs(FloatPair a, FloatPair b) {
    const FloatPair high = TwoSum(a.sum, b.sum);
    return FastTwoSum(high.sum, high.rest + (a.rest + b.rest));
}
// x * x exactly: float32 halves of 12 bits have exact products.
FloatPair Square(float x) {
    const float square = x * x, spread = 4097.0f * x;
    const float high = spread - (spread - x), low = x - high;
    return {square, ((high * high - square) + 2 * high * low) + low * low};
}

// ---- Runs --------------------------------------------------------------------------------------

template <typename Args>
AdamArgs AdamOf(const Args& args, bool decays) {
    const auto t = static_cast<double>(args.numbers->number);
    AdamArgs adam;
    adam.rate = static_cast<float>(args.numbers->rate);
    adam.beta1 = static_cast<float>(args.beta1);
    adam.beta2 = static_cast<float>(args.beta2);
    adam.eps = static_cast<float>(args.eps);
    // Uses the betas that the kernels multiply by: 1 - float(0.999) is 1.3e-5 below 1 - 0.999.
    adam.correction1 = static_cast<float>(1 - std::pow(double{adam.beta1}, t));
    adam.correction2 = static_cast<float>(1 - std::pow(double{adam.beta2}, t));
    adam.grad_scale = static_cast<float>(args.numbers->gradient_scale);
    adam.l2 = decays ? static_cast<float>(args.l2) : 0.0f;
    adam.decay = decays ? static_cast<float>(args.decay) : 0.0f;
    return adam;
}

// Points AdamArgs or SgdArgs at the elements from `begin` on.
template <typename Args>
void PointAt(const UpdatedPart& own, int64_t begin, Args& args) {
    args.p = own.p + begin;
    args.g = ElementAt(own.g, own.g_type, begin);
    args.g_type = own.g_type;
    // (The table has no kernel for two narrow types, even without a copy.)
    args.copy_type = own.copy == nullptr ? own.g_type : own.copy_type;
    if (own.copy == nullptr) return;
    args.copy = static_cast<std::byte*>(own.copy) + begin * ElementBytes(own.copy_type);
}

// Updates one block of 8-bit moments; `adam` has its elements.
void UpdateBlock(const Kernels& kernels, const Adam8bitRunsArgs& args, int64_t begin,
                 AdamArgs adam) {
    const auto size = static_cast<size_t>(adam.count);
    const std::span<uint8_t> m_codes(args.m + begin, size), v_codes(args.v + begin, size);
    float& m_scale = args.m_scales[begin / kStateBlock];
    float& v_scale = args.v_scales[begin / kStateBlock];
    float m[kStateBlock], v[kStateBlock];
    Widen(SignedCodes(), m_codes, m_scale, std::span(m, size));
    Widen(UnsignedCodes(), v_codes, v_scale, std::span(v, size));
    adam.m = m;
    adam.v = v;
    kernels.adam(adam, 0, 1);
    m_scale = Narrow(SignedCodes(), std::span(m, size), m_codes);
    v_scale = Narrow(UnsignedCodes(), std::span(v, size), v_codes);
}

// ---- Factored runs -----------------------------------------------------------------------------

// Calls f(get) with get(i), element i of a vector as a float times `scale`.
template <typename F>
void WithFloats(const void* from, Element type, double scale, const F& f) {
    const auto factor = static_cast<float>(scale);
    if (type == Element::kF32) {
        const auto* const x = static_cast<const float*>(from);
        return f([x, factor](int64_t i) { return factor * x[i]; });
    }
    const auto* const x = static_cast<const uint16_t*>(from);
    if (type == Element::kF16) {
        f([x, factor](int64_t i) { return factor * F16ToF32(x[i]); });
    } else {
        f([x, factor](int64_t i) { return factor * BF16ToF32(x[i]); });
    }
}

// Rows of the block that the run's range touches.
Range RowsOfRun(const FactoredRun& run) {
    return {run.range.begin / run.col_count, (run.range.end + run.col_count - 1) / run.col_count};
}
// This part's share of these rows.
Range ShareOf(const FactoredRun& run, int part, int parts) {
    const Range all = RowsOfRun(run);
    const Range share = Share(all.end - all.begin, 1, part, parts);
    return {all.begin + share.begin, all.begin + share.end};
}
// Calls f(row, first column, end) for rows of the run's block within its range.
template <typename F>
void ForRowsOf(const FactoredRun& run, Range rows, const F& f) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const int64_t first = std::max(run.range.begin - row * run.col_count, int64_t{0});
        const int64_t last = std::min(run.range.end - row * run.col_count, run.col_count);
        if (first < last) f(row, first, last);
    }
}
// Index in the own part of column 0 in a row of the block.
int64_t FirstOfRow(const FactoredRun& run, int64_t row) {
    return run.own + row * run.col_count - run.range.begin;
}
float InverseRow(const FactoredRun& run, const float* inverse, int64_t row) {
    return run.tensor.rows == 0 ? 1.0f : inverse[run.tensor.rows_at + run.row_begin + row];
}
// Index of the moment of the block's first column, for the matrix that contains the row.
int64_t ColsOf(const FactoredRun& run, int64_t row) {
    return run.tensor.ColsOf(run.row_begin + row) + run.col_begin;
}

void AddRunSums(const AdafactorSumsArgs& args, const FactoredRun& run, int part, int parts) {
    const Range cols = Share(run.col_count, 16, part, parts);
    WithFloats(args.g, args.g_type, args.numbers->gradient_scale, [&](const auto& get) {
        const auto square = [&](int64_t i) {
            const double g = get(i);
            return g * g;
        };
        ForRowsOf(run, RowsOfRun(run), [&](int64_t row, int64_t first, int64_t last) {
            double* const sums = args.sums + ColsOf(run, row);
            const int64_t at = FirstOfRow(run, row), end = std::min(last, cols.end);
            for (int64_t c = std::max(first, cols.begin); c < end; ++c) sums[c] += square(at + c);
        });
        if (run.tensor.rows == 0) return;
        ForRowsOf(run, ShareOf(run, part, parts), [&](int64_t row, int64_t first, int64_t last) {
            const int64_t at = FirstOfRow(run, row);
            double sum = 0;
            for (int64_t c = first; c < last; ++c) sum += square(at + c);
            args.sums[run.tensor.rows_at + run.row_begin + row] += sum;
        });
    });
}

// The moments of one tensor, matrix by matrix.
void UpdateMoments(const AdafactorMomentsArgs& args, const FactoredTensor& f, double kept) {
    const auto update = [&](int64_t at, int64_t count) {
        const double mean = args.sums[at] / static_cast<double>(count) + args.eps_square;
        args.moments[at] = static_cast<float>(kept * args.moments[at] + (1 - kept) * mean);
    };
    const int64_t rows_of_one = f.rows_of_one();
    for (int64_t begin = 0; begin < f.rows; begin += rows_of_one) {
        const int64_t end = f.rows_at + std::min(begin + rows_of_one, f.rows);
        double mean = 0;  // mean of the matrix's rows
        for (int64_t at = f.rows_at + begin; at < end; ++at) {
            update(at, f.cols);
            mean += args.moments[at] / static_cast<double>(rows_of_one);
        }
        for (int64_t at = f.rows_at + begin; at < end; ++at) {
            args.inverse[at] = static_cast<float>(1 / std::sqrt(args.moments[at] / mean));
        }
    }
    for (int64_t at = f.cols_at; at < f.cols_at + f.cols * f.matrices; ++at) {
        update(at, rows_of_one);
        const double col = args.moments[at];
        args.inverse[at] = static_cast<float>(1 / std::sqrt(col));
    }
}

// The squares of a row of an update, before the learning rate is applied.
double RowSize(const AdafactorSizesArgs& args, const FactoredRun& run, int64_t row) {
    double scaled = 0;
    WithFloats(args.g, args.g_type, args.numbers->gradient_scale, [&](const auto& get) {
        ForRowsOf(run, {row, row + 1}, [&](int64_t, int64_t first, int64_t last) {
            const double scale = InverseRow(run, args.inverse, row);
            const float* const cols = args.inverse + ColsOf(run, row);
            const int64_t at = FirstOfRow(run, row);
            double sum = 0;
            for (int64_t c = first; c < last; ++c) {
                const double u = get(at + c) * cols[c];
                sum += u * u;
            }
            scaled = sum * scale * scale;
        });
    });
    return scaled;
}

// The learning rate before clipping.
double RateOf(const AdafactorUpdateArgs& args, const FactoredTensor& f) {
    double rate = args.numbers->rate;
    if (args.relative_step) {
        rate = std::min(1e-2, 1 / std::sqrt(static_cast<double>(args.numbers->number)));
    }
    if (!args.scale_parameter) return rate;
    const double squares = args.sums[args.moments + f.number];
    return rate * std::max(args.eps_scale, std::sqrt(squares / f.elements()));
}

void UpdateRows(const AdafactorUpdateArgs& args, const FactoredRun& run, Range rows) {
    const double whole = RateOf(args, run.tensor);
    const double size = std::sqrt(args.squares[run.tensor.number] / run.tensor.elements());
    const auto rate = static_cast<float>(whole / std::max(1.0, size / args.clip_threshold));
    const auto kept = static_cast<float>(1 - (run.decays ? args.decay : 0.0) * whole);
    const UpdatedPart& own = args.own;
    WithFloats(own.g, own.g_type, args.numbers->gradient_scale, [&](const auto& get) {
        ForRowsOf(run, rows, [&](int64_t row, int64_t first, int64_t last) {
            const float scale = rate * InverseRow(run, args.inverse, row);
            const float* const cols = args.inverse + ColsOf(run, row);
            const int64_t at = FirstOfRow(run, row);
            for (int64_t c = first; c < last; ++c) {
                float& p = own.p[at + c];
                p = p * kept - get(at + c) * cols[c] * scale;
            }
        });
    });
}

}  // namespace

// ---- Sums of squares ---------------------------------------------------------------------------

int64_t SquaresBlocks(const ElementRange* ranges, int64_t count) {
    int64_t blocks = 0;
    ForBlocks(ranges, count, 0, 1, [&](int64_t, int64_t, int64_t) { ++blocks; });
    return blocks;
}

void BlockSquares(const SquaresArgs& args, int part, int parts) {
    SquaredBlock blocks[kBlocksAtOnce];
    int count = 0;
    const auto add = [&](int64_t number, int64_t begin, int64_t elements) {
        blocks[count++] = {number, begin, elements};
        if (count < kBlocksAtOnce) return;
        SumBlocks(args, blocks);
        count = 0;
    };
    ForBlocks(args.ranges, args.range_count, part, parts, add);
    for (const SquaredBlock& block : std::span(blocks, static_cast<size_t>(count))) {
        args.blocks[block.number] = SumOfSquares(args, block.begin, block.elements, 0);
    }
}

void AddSquares(const SquaresArgs& args, int part, int) {
    if (part != 0) return;
    const int64_t blocks = SquaresBlocks(args.ranges, args.range_count);
    *args.sum = std::accumulate(args.blocks, args.blocks + blocks, *args.sum);
}

void BlockPairSquares(const PairSquaresArgs& args, int part, int parts) {
    const auto block = [&](int64_t number, int64_t begin, int64_t count) {
        FloatPair lanes[kPairLanes];
        ForFloats(args.x, args.type, begin, count, [&](std::span<const float> floats) {
            for (size_t i = 0; i < floats.size(); ++i) {
                FloatPair& lane = lanes[i % kPairLanes];
                lane = AddPairs(lane, Square(floats[i]));
            }
        });
        FloatPair sum;
        for (const FloatPair& lane : lanes) sum = AddPairs(sum, lane);
        args.blocks[number] = sum;
    };
    ForBlocks(args.ranges, args.range_count, part, parts, block);
}

void AddPairSquares(const PairSquaresArgs& args, int part, int) {
    if (part != 0) return;
    const int64_t blocks = SquaresBlocks(args.ranges, args.range_count);
    *args.sum = std::accumulate(args.blocks, args.blocks + blocks, *args.sum, AddPairs);
}

// ---- Adam and SGD ------------------------------------------------------------------------------

void AdamRuns(const Kernels& kernels, const AdamRunsArgs& args, int part, int parts) {
    for (const UpdateRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        AdamArgs adam = AdamOf(args, run.decays);
        PointAt(args.own, run.begin, adam);
        adam.m = args.m + run.kept;
        adam.v = args.v + run.kept;
        adam.count = run.count;
        kernels.adam(adam, part, parts);
    }
}

void Adam8bitRuns(const Kernels& kernels, const Adam8bitRunsArgs& args, int part, int parts) {
    for (const UpdateRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        AdamArgs adam = AdamOf(args, run.decays);
        const int64_t blocks = (run.count + kStateBlock - 1) / kStateBlock;
        const Range share = Share(blocks, 1, part, parts);
        for (int64_t block = share.begin; block < share.end; ++block) {
            const int64_t begin = run.begin + block * kStateBlock;
            PointAt(args.own, begin, adam);
            adam.count = std::min(kStateBlock, run.begin + run.count - begin);
            UpdateBlock(kernels, args, begin, adam);
        }
    }
}

void SgdRuns(const Kernels& kernels, const SgdRunsArgs& args, int part, int parts) {
    const UpdateNumbers& numbers = *args.numbers;
    for (const UpdateRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        SgdArgs sgd;
        PointAt(args.own, run.begin, sgd);
        sgd.b = args.b == nullptr ? nullptr : args.b + run.kept;
        sgd.count = run.count;
        sgd.rate = static_cast<float>(numbers.rate);
        sgd.momentum = static_cast<float>(args.momentum);
        sgd.taken = numbers.number == 1 ? 1.0f : SgdTaken(args.momentum, args.dampening);
        sgd.l2 = run.decays ? static_cast<float>(args.l2) : 0.0f;
        sgd.nesterov = args.nesterov;
        sgd.grad_scale = static_cast<float>(numbers.gradient_scale);
        kernels.sgd(sgd, part, parts);
    }
}

// ---- Adafactor ---------------------------------------------------------------------------------

void AdafactorSums(const AdafactorSumsArgs& args, int part, int parts) {
    const std::span runs(args.runs, static_cast<size_t>(args.run_count));
    for (const FactoredRun& run : runs) AddRunSums(args, run, part, parts);
    if (!args.sizes) return;
    for (const FactoredRun& run : runs) {
        if (run.tensor.number % parts != part) continue;
        double& sum = args.sums[args.moments + run.tensor.number];
        for (int64_t i = run.own; i < run.own + run.range.end - run.range.begin; ++i) {
            sum += double{args.p[i]} * double{args.p[i]};
        }
    }
}

void AdafactorMoments(const AdafactorMomentsArgs& args, int part, int parts) {
    const double kept = 1 - std::pow(static_cast<double>(args.numbers->number), args.decay_rate);
    for (int64_t i = part; i < args.tensor_count; i += parts) {
        UpdateMoments(args, args.tensors[i], kept);
    }
}

int64_t AdafactorRows(const FactoredRun* runs, int64_t count) {
    int64_t rows = 0;
    for (const FactoredRun& run : std::span(runs, static_cast<size_t>(count))) {
        rows += RowsOfRun(run).end - RowsOfRun(run).begin;
    }
    return rows;
}

void AdafactorRowSizes(const AdafactorSizesArgs& args, int part, int parts) {
    double* sizes = args.rows;  // sizes of the run's rows
    for (const FactoredRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        const Range all = RowsOfRun(run), share = ShareOf(run, part, parts);
        for (int64_t row = share.begin; row < share.end; ++row) {
            sizes[row - all.begin] = RowSize(args, run, row);
        }
        sizes += all.end - all.begin;
    }
}

void AdafactorAddSizes(const AdafactorSizesArgs& args, int part, int) {
    if (part != 0) return;
    const double* sizes = args.rows;
    for (const FactoredRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        const double* const end = sizes + AdafactorRows(&run, 1);
        double& sum = args.squares[run.tensor.number];
        sum = std::accumulate(sizes, end, sum);
        sizes = end;
    }
}

void AdafactorUpdate(const Kernels& kernels, const AdafactorUpdateArgs& args, int part, int parts) {
    const UpdatedPart& own = args.own;
    for (const FactoredRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        const Range rows = ShareOf(run, part, parts);
        UpdateRows(args, run, rows);
        if (own.copy == nullptr) continue;
        const int64_t first = std::max(rows.begin * run.col_count, run.range.begin);
        const int64_t last = std::min(rows.end * run.col_count, run.range.end);
        const int64_t count = std::max(last - first, int64_t{0});
        const int64_t at = run.own + first - run.range.begin;
        const Matrix copy{own.copy, count, own.copy_type};
        kernels.scale({{own.p + at, count}, 1, count, 1, copy.From(0, at)}, 0, 1);
    }
}

}  // namespace weft::kernels::dense
