#include "engine/rank/shard_ranges.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "base/on_threads.h"
#include "cluster/frame.h"
#include "model/load.h"
#include "model/model.h"
#include "model_files/weight_file.h"

namespace weft::engine {
namespace {

constexpr int64_t kReadBytes = 8 << 20;
// A note (hub/part.h) can hold many more, from several shards.
constexpr size_t kMostRanges = 1 << 14;

// Reads every row of `weight`.
Status ReadAll(const model_files::ModelSource& source, const program::Value& weight) {
    std::vector<std::byte> buffer;
    const program::Shape& shape = weight.shape;
    const int64_t cols = shape.rank == 1 ? 1 : shape[shape.rank - 1];
    const int64_t matrix_rows = shape[std::max(0, shape.rank - 2)];
    const int64_t matrices = shape.rank == 3 ? shape[0] : 1;
    const int64_t row_bytes = RowBytes(weight.dtype, cols);
    const int64_t most = std::max<int64_t>(1, kReadBytes / std::max<int64_t>(1, row_bytes));
    for (int64_t matrix = 0; matrix < matrices; ++matrix) {
        for (int64_t row = 0; row < matrix_rows; row += most) {
            const int64_t count = std::min(most, matrix_rows - row);
            buffer.resize(static_cast<size_t>(count * row_bytes));
            WEFT_TRY(model::ReadWeight(source, weight, matrix * matrix_rows + row, count, buffer,
                                       nullptr));
        }
    }
    return {};
}

Status ReadWeights(const model_files::ModelSource& source, const program::Program& program) {
    return OnThreads(std::thread::hardware_concurrency(), program.values.size(),
                     [&](size_t i) -> Status {
                         const program::Value& value = program.values[i];
                         if (value.storage != program::Storage::kWeight) return {};
                         return ReadAll(source, value);
                     });
}

Status ReadShard(const std::string& model, const ShardOf& shard, model_files::ReadPlan& plan) {
    WEFT_ASSIGN(const auto source, model_files::OpenModel(model, &plan));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(shard.ranks, shard.tp, shard.pp, shard.split, shard.ep));
    WEFT_ASSIGN(const model::ShardPlan shards, model::PlanShards(hyper, *source, layout));
    WEFT_ASSIGN(const program::Program program,
                model::BuildProgram(hyper, shards.shards[static_cast<size_t>(shard.rank)], *source,
                                    model::BuildOptions()));
    plan.Pretend();
    WEFT_TRY(ReadWeights(*source, program));
    WEFT_ASSIGN([[maybe_unused]] const std::string ignored, source->Fingerprint());
    return {};
}

}  // namespace

Result<ShardOf> ParseShard(const std::string& text) {
    ShardOf shard;
    const char* const end = text.data() + text.size();
    const auto rank = std::from_chars(text.data(), end, shard.rank);
    if (rank.ec == std::errc() && rank.ptr != end && *rank.ptr == '/') {
        const auto ranks = std::from_chars(rank.ptr + 1, end, shard.ranks);
        const bool number = ranks.ec == std::errc() && ranks.ptr == end;
        const bool fits = std::cmp_less_equal(shard.ranks, cluster::kMostRanks);
        if (number && shard.rank >= 0 && shard.rank < shard.ranks && fits) return shard;
    }
    return MakeError(ErrorCode::kUsage,
                     "--shard: '{}'; expected RANK/RANKS, ranks counted from 0, at most {}: three "
                     "ranks have the shards 0/3, 1/3 and 2/3",
                     text.substr(0, 40), cluster::kMostRanks);
}

Result<hub::ShardRanges> RangesOfShard(const std::string& model, const ShardOf& shard) {
    model_files::ReadPlan plan(shard.gap_bytes);
    const Status read = ReadShard(model, shard, plan);
    hub::ShardRanges ranges;
    ranges.files = plan.Take();
    ranges.is_all = read.ok();
    // Missing ranges may cause any error; an error without them is real.
    if (!read.ok() && ranges.files.empty()) return read.error();
    for (auto& [path, set] : ranges.files) {
        for (uint64_t gap = shard.gap_bytes; set.ranges().size() > kMostRanges; gap *= 2) {
            hub::RangeSet wider(std::max<uint64_t>(gap, 1) * 2);
            for (const hub::ByteRange& range : set.ranges()) wider.Add(range);
            set = std::move(wider);
        }
    }
    return ranges;
}

}  // namespace weft::engine
