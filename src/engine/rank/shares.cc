#include "engine/rank/shares.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/deadline.h"

namespace weft::engine {
namespace {

using program::ValueId;

// Sides of the square matrices, which all weight types support, and the side if no piece is
// requested. All matrices together are larger than any cache.
constexpr int64_t kLeastSide = 1024, kSide = 4096, kSideStep = 256;
constexpr int64_t kMeasuredBytes = 96 << 20;
// For a GPU, whose caches are larger and whose steps start slowly; at most this share of its free
// memory.
constexpr int64_t kMeasuredOnGpu = 1 << 30;
constexpr int64_t kShareMeasured = 8;
// Measures for this time, but at least a few steps; the fastest step counts.
constexpr int64_t kMeasureNs = 150'000'000;
constexpr int kLeastSteps = 2, kMostSteps = 200;

// Share of the free memory for weights; the rest holds the cache and activations.
constexpr double kWeightsShare = 0.75;
constexpr double kAlike = 1.1;
constexpr double kShares = 100;  // sum of all shares

program::Value WeightOf(const char* name, int64_t number, DType dtype, int64_t rows,
                        int64_t columns) {
    program::Value value;
    value.name = fmt::format("{}{}", name, number);
    value.dtype = dtype;
    value.shape = {rows, columns};
    value.storage = program::Storage::kWeight;
    value.slice.name = value.name;
    return value;
}

int64_t SideOf(DType dtype, double piece_bytes) {
    if (piece_bytes == 0) return kSide;
    const double element = static_cast<double>(RowBytes(dtype, kSide)) / kSide;
    const auto side = static_cast<int64_t>(std::sqrt(piece_bytes / element));
    return std::clamp(side / kSideStep * kSideStep, kLeastSide, kSide);
}

// Multiplies one row by one matrix after another. last: the result.
program::Program ProductsOf(DType dtype, int64_t matrices, int64_t side, ValueId& last) {
    program::Program program;
    program::Value tokens;
    tokens.name = "tokens";
    tokens.dtype = DType::kI32;
    tokens.shape = {program::kTokens};
    tokens.storage = program::Storage::kInput;
    const ValueId input = program.AddValue(std::move(tokens));
    const ValueId table = program.AddValue(WeightOf("table", 0, DType::kF32, 1, side));
    const program::Shape row{program::kTokens, side};
    last = program.Emit(program::Embedding{}, {input, table}, "x", row);
    for (int64_t i = 0; i < matrices; ++i) {
        const ValueId weight = program.AddValue(WeightOf("w", i, dtype, side, side));
        last = program.Emit(program::MatMul{}, {last, weight}, fmt::format("y{}", i), row);
    }
    return program;
}

Status RunOnce(backend::Executable& executable, const program::OpRange& ops, int64_t number) {
    const int32_t token = 0, position = 0, page = 0;
    const backend::StepSequence sequence{0, 1, 0, {&page, 1}};
    backend::Step step;
    step.number = number;
    step.tokens = {&token, 1};
    step.positions = {&position, 1};
    step.sequences = {&sequence, 1};
    return executable.Run(ops, step, {});
}

// Multiplies by `count` of the matrices, in each call by the next ones.
std::function<Status()> PieceOf(backend::Executable& executable, size_t count) {
    return [&executable, count, at = size_t{1}, number = int64_t{kMostSteps} + 2]() mutable {
        if (at + count > executable.whole().end) at = 1;  // op 0 is the embedding
        const size_t begin = std::exchange(at, at + count);
        return RunOnce(executable, {begin, at}, number++);
    };
}

// Moves the part that exceeds a rank's memory to the others, in proportion to their speeds.
std::vector<double> WithinSpace(std::vector<double> shares, std::span<const RankSpeed> units,
                                uint64_t model_bytes) {
    const auto most = [&](size_t i) {
        if (units[i].space_bytes == 0 || model_bytes == 0) return 1.0;
        return kWeightsShare * static_cast<double>(units[i].space_bytes) /
               static_cast<double>(model_bytes);
    };
    for (size_t turn = 0; turn < shares.size(); ++turn) {
        double over = 0, open = 0;
        for (size_t i = 0; i < shares.size(); ++i) {
            if (shares[i] >= most(i)) {
                over += shares[i] - most(i);
                shares[i] = most(i);
            } else {
                open += units[i].bytes_per_s;
            }
        }
        if (over <= 0 || open <= 0) break;
        for (size_t i = 0; i < shares.size(); ++i) {
            if (shares[i] < most(i)) shares[i] += over * units[i].bytes_per_s / open;
        }
    }
    return shares;
}

int64_t BytesToMeasure(const backend::Device& device) {
    const backend::DeviceInfo& info = device.info();
    if (!info.submits || info.uses_host_cores) return kMeasuredBytes;
    const auto free = static_cast<int64_t>(device.pool().free_bytes);
    return std::clamp(free / kShareMeasured, kMeasuredBytes, kMeasuredOnGpu);
}

// Combines ranks that work together into one.
RankSpeed StageSpeed(std::span<const RankSpeed> ranks) {
    RankSpeed stage = ranks[0];
    for (const RankSpeed& rank : ranks) {
        stage.bytes_per_s = std::min(stage.bytes_per_s, rank.bytes_per_s);
        stage.space_bytes = std::min(stage.space_bytes, rank.space_bytes);
    }
    const auto count = static_cast<double>(ranks.size());
    return {stage.bytes_per_s * count, stage.space_bytes * ranks.size()};
}

}  // namespace

// (DTypeOfName has only types of files, not types made at load.)
DType MeasuredType(std::string_view main_type) {
    const auto* const type = std::ranges::find(kDTypes, main_type, &DTypeInfo::name);
    return type == kDTypes.end() ? DType::kF16 : type->dtype;
}

Result<RankSpeed> MeasureSpeed(backend::Device& device, DType weights, const SpeedTrial& trial) {
    const int64_t side = SideOf(weights, trial.piece_bytes);
    const int64_t each = RowBytes(weights, side) * side;
    const int64_t matrices = std::max<int64_t>(1, BytesToMeasure(device) / each);
    ValueId last = program::kNoValue;
    const program::Program program = ProductsOf(weights, matrices, side, last);
    backend::CompileOptions options;
    options.max_tokens = 1;
    options.kv_pages = 1;
    options.page_tokens = device.info().target.page_tokens;
    options.keep = {last};
    WEFT_ASSIGN(const auto executable, device.Compile({program}, options));
    for (size_t i = 0; i < program.values.size(); ++i) {
        if (program.values[i].storage != program::Storage::kWeight) continue;
        WEFT_TRY(executable->LoadWeight(static_cast<ValueId>(i),
                                        [](int64_t, int64_t, std::span<std::byte> out) {
                                            std::memset(out.data(), 0, out.size());
                                            return Status();
                                        }));
    }
    WEFT_TRY(RunOnce(*executable, executable->whole(), 1));  // compiles kernels, touches memory
    const backend::MemoryPool pool = device.pool();
    WEFT_TRY(trial.ready());
    const int64_t begin_ns = NowNs();
    double fastest_s = INFINITY;
    for (int step = 0; step < kMostSteps; ++step) {
        const int64_t step_ns = NowNs();
        if (step >= kLeastSteps && step_ns - begin_ns > kMeasureNs) break;
        WEFT_TRY(RunOnce(*executable, executable->whole(), step + 2));
        fastest_s = std::min(fastest_s, SecondsSince(step_ns));
    }
    if (trial.then) {
        const auto count = static_cast<int64_t>(trial.piece_bytes / static_cast<double>(each));
        WEFT_TRY(trial.then(
            PieceOf(*executable, static_cast<size_t>(std::clamp<int64_t>(count, 1, matrices)))));
    }
    const double bytes = static_cast<double>(each * matrices);
    return RankSpeed{bytes / std::max(fastest_s, 1e-9), pool.free_bytes};
}

std::vector<double> SharesBySpeed(std::span<const RankSpeed> ranks, const model::Layout& layout,
                                  uint64_t model_bytes) {
    std::vector<RankSpeed> units(ranks.begin(), ranks.end());
    const auto tp = static_cast<size_t>(layout.tp);
    if (layout.pp > 1) {
        units.clear();
        for (size_t at = 0; at < ranks.size(); at += tp) {
            units.push_back(StageSpeed(ranks.subspan(at, tp)));
        }
    }
    const auto [least, most] = std::ranges::minmax(units, {}, &RankSpeed::bytes_per_s);
    if (units.size() < 2 || !(least.bytes_per_s > 0)) return {};
    const bool alike = most.bytes_per_s <= kAlike * least.bytes_per_s;
    double sum = 0;
    for (const RankSpeed& unit : units) sum += unit.bytes_per_s;
    std::vector<double> shares;
    for (const RankSpeed& unit : units) {
        shares.push_back(alike ? 1 / static_cast<double>(units.size()) : unit.bytes_per_s / sum);
    }
    const std::vector<double> before = shares;
    shares = WithinSpace(std::move(shares), units, model_bytes);
    if (alike && shares == before) return {};
    // (A user can read whole shares, and pass them again.)
    for (double& share : shares) {
        share = std::max(1.0, std::round(share * kShares));
    }
    if (layout.tp > 1 && layout.pp > 1) shares.insert(shares.begin(), tp, 1.0);
    return shares;
}

}  // namespace weft::engine
