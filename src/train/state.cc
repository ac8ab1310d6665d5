#include "train/state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/json.h"
#include "base/on_threads.h"
#include "hw/cpu.h"
#include "model/load.h"
#include "tensor/half_rows.h"
#include "tensor/quant.h"

namespace weft::train {
namespace {

using program::FlatBucket;

// Elements converted at a time when weights are loaded.
constexpr int64_t kLoadElements = 1 << 20;
// Threads that read weights. Each has buffers of some kLoadElements.
constexpr size_t kMostLoaders = 16;

int64_t StateCols(const program::Value& weight) {
    return weight.shape.rank == 1 ? 1 : weight.shape[1];
}

// `rows` without the rows of `out`.
std::vector<ElementRange> Without(const std::vector<ElementRange>& rows, const ElementRange& out) {
    std::vector<ElementRange> left;
    for (const ElementRange& range : rows) {
        const ElementRange before{range.begin, std::min(range.end, out.begin)};
        const ElementRange after{std::max(range.begin, out.end), range.end};
        if (before.begin < before.end) left.push_back(before);
        if (after.begin < after.end) left.push_back(after);
    }
    return left;
}

// F32, BF16 or F16.
// writes: held while it writes, because an Executable has one caller at a time.
Status WriteAs(backend::Executable& training, std::mutex& writes, program::ValueId id, DType dtype,
               int64_t first, std::span<const float> values) {
    std::span<const std::byte> bytes = std::as_bytes(values);
    std::vector<std::byte> narrow;
    if (dtype != DType::kF32) {
        narrow.resize(static_cast<size_t>(RowBytes(dtype, std::ssize(values))));
        NarrowRow(dtype, values, narrow.data());
        bytes = narrow;
    }
    const std::lock_guard lock(writes);
    return training.Write(id, RowBytes(dtype, first), bytes);
}

// Blocks of the same shape at a constant distance in rows are one entry, because experts give
// thousands of blocks.
struct Entry {
    Holding first;
    int64_t count = 1, stride = 0;
};

// Whether `next` continues `entry`.
bool Extends(const Entry& entry, const Holding& next) {
    const Holding& h = entry.first;
    const bool alike =
        next.tensor == h.tensor && next.rows == h.rows && next.col == h.col && next.cols == h.cols;
    const int64_t away = next.row - h.row;
    return alike && (entry.count == 1 ? away > 0 : away == entry.count * entry.stride);
}

// Without the replica: its ranks hold what the ranks of other replicas hold.
std::string ToText(const std::vector<FlatBucket>& units) {
    std::vector<Entry> entries;
    for (const FlatBucket& unit : units) {
        for (const FlatBucket::Member& member : unit.members) {
            const Holding h = HoldingOf(member.weight);
            if (entries.empty() || !Extends(entries.back(), h)) {
                entries.push_back({h});
                continue;
            }
            Entry& entry = entries.back();
            if (entry.count == 1) entry.stride = h.row - entry.first.row;
            ++entry.count;
        }
    }
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [h, count, stride] : entries) {
        all.push_back({h.tensor, h.row, h.rows, h.col, h.cols, count, stride});
    }
    return all.dump();
}

std::vector<Holding> FromText(const std::string& text) {
    constexpr int64_t kMostElements = 1 << 20;
    const nlohmann::json parsed =
        JsonOrDiscarded(text, {.values = size_t{1} << 24, .keys = size_t{1} << 20});
    std::vector<Holding> holdings;
    for (const nlohmann::json& h : parsed) {
        const int64_t count = std::min(h.at(5).get<int64_t>(), kMostElements), stride = h.at(6);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = h.at(1).get<int64_t>() + i * stride;
            holdings.push_back({h.at(0), row, h.at(2), h.at(3), h.at(4)});
        }
    }
    return holdings;
}

// The holdings of each tensor.
using Holdings = std::map<std::string, std::vector<Holding>, std::less<>>;

// The holdings of all ranks. The text of each distinct list of holdings travels once: the lists of
// a large job's ranks have hundreds of MB.
struct AllHoldings {
    std::vector<int> replicas;       // by rank
    std::vector<std::string> texts;  // by rank: what ToText returns, of the first rank with it
    std::vector<size_t> first;       // by rank: the first rank with the same text
};

Result<AllHoldings> GatherHoldings(cluster::Cluster& cluster, std::string mine, int replica) {
    const Sha256Digest digest = Sha256(std::as_bytes(std::span(mine)));
    const std::string word = fmt::format("{} {}", Hex(digest), replica);
    AllHoldings all;
    WEFT_ASSIGN(const auto words, cluster.AllGather("weights", word, Deadline::In(kAgreeMs)));
    std::map<std::string, size_t> places;
    for (size_t rank = 0; rank < words.size(); ++rank) {
        const size_t blank = std::min(words[rank].find(' '), words[rank].size());
        all.first.push_back(places.emplace(words[rank].substr(0, blank), rank).first->second);
        all.replicas.push_back(std::atoi(words[rank].c_str() + blank));
    }
    const auto own = static_cast<size_t>(cluster.rank());
    if (all.first[own] != own) mine.clear();
    WEFT_ASSIGN(all.texts, cluster.AllGather("holdings", mine, Deadline::In(kAgreeMs)));
    return all;
}

// The holdings of lower ranks of the same replica. names: all tensors are added.
Result<Holdings> EarlierHoldings(const AllHoldings& all, size_t rank, int replica,
                                 std::set<std::string, std::less<>>& names) {
    std::map<size_t, std::vector<Holding>> lists;
    Holdings earlier;
    for (size_t r = 0; r < all.texts.size(); ++r) {
        const size_t first = all.first[r];
        if (first == r) {
            try {
                lists[r] = FromText(all.texts[r]);
            } catch (const nlohmann::json::exception& error) {
                return MakeError(ErrorCode::kCorrupt,
                                 "rank {} does not say which weights it has: {}", r, error.what());
            }
            for (const Holding& holding : lists[r]) names.insert(holding.tensor);
        }
        if (all.replicas[r] != replica || r >= rank) continue;
        for (const Holding& holding : lists[first]) earlier[holding.tensor].push_back(holding);
    }
    return earlier;
}

// Reads rows of a frozen weight in its type in memory.
Status ReadFrozenRows(const model_files::ModelSource& source, const program::Value& weight,
                      int64_t row, int64_t count, std::span<std::byte> out) {
    const DType dtype = weight.dtype;
    if (Info(dtype).quantized) return model::ReadWeight(source, weight, row, count, out, nullptr);
    const int64_t cols = StateCols(weight), first = row * cols;
    return ReadElements(source, weight, first, first + count * cols,
                        [&](int64_t begin, std::span<const float> values) {
                            std::byte* const to = out.data() + RowBytes(dtype, begin - first);
                            if (dtype == DType::kF32) {
                                std::memcpy(to, values.data(), values.size_bytes());
                            } else {
                                NarrowRow(dtype, values, to);
                            }
                            return Status();
                        });
}

}  // namespace

Holding HoldingOf(const program::Value& weight) {
    return {weight.slice.name, weight.slice.row_begin, weight.shape[0],
            weight.shape.rank == 1 ? 0 : weight.slice.col_begin, StateCols(weight)};
}

Status ReadElements(const model_files::ModelSource& source, const program::Value& weight,
                    int64_t begin, int64_t end, const TakeFloats& take) {
    program::Value value = weight;
    const model_files::TensorInfo* tensor = source.FindTensor(weight.slice.name);
    if (value.shape.rank > 2 || tensor == nullptr) {
        return MakeError(ErrorCode::kUnsupported, "{}: weight {} cannot be trained", source.name(),
                         weight.name);
    }
    value.dtype = tensor->dtype;
    const int64_t cols = StateCols(weight), step = std::max(kLoadElements / cols, int64_t{1});
    std::vector<std::byte> raw;
    std::vector<float> floats;
    for (int64_t row = begin / cols; row * cols < end; row += step) {
        const int64_t rows = std::min(step, (end + cols - 1) / cols - row);
        const bool vector = value.shape.rank == 1;
        raw.resize(static_cast<size_t>(vector ? RowBytes(value.dtype, rows)
                                              : rows * RowBytes(value.dtype, cols)));
        floats.resize(static_cast<size_t>(rows * cols));
        WEFT_TRY(model::ReadWeight(source, value, row, rows, raw, nullptr));
        DequantizeRow(value.dtype, raw, floats);
        const int64_t first = std::max(begin, row * cols);
        const int64_t last = std::min(end, (row + rows) * cols);
        WEFT_TRY(take(
            first, std::span<const float>(floats).subspan(static_cast<size_t>(first - row * cols),
                                                          static_cast<size_t>(last - first))));
    }
    return {};
}

Status TrainState::Agree(const std::vector<FlatBucket>& units, cluster::Cluster& cluster,
                         int replica) {
    parts_.clear();
    for (const FlatBucket& unit : units) parts_.push_back({&unit, {}});
    return FindSole(cluster, replica, units);
}

Status TrainState::Load(backend::Executable& training, const model_files::ModelSource& source,
                        cluster::Cluster& cluster) {
    training_ = &training;
    // A device may have pinned this thread to one core, which new threads would inherit.
    const PinnedThread pinned(cluster.cores());
    struct Item {
        const OwnPart* part;
        const FlatBucket::Member* member;
    };
    std::vector<Item> items;
    int64_t all = 1;
    for (const OwnPart& part : parts_) {
        for (const FlatBucket::Member& member : part.unit->members) {
            items.push_back({&part, &member});
            all += member.weight.shape.Elements(0, 0);
        }
    }
    std::atomic<int64_t> done{0};
    std::mutex writes;
    const size_t threads = std::min(kMostLoaders, cluster.cores().size());
    const auto load = [&](size_t i) -> Status {
        const auto& [part, member] = items[i];
        WEFT_TRY(LoadMember(*part, *member, source, cluster, writes));
        done += member->weight.shape.Elements(0, 0);
        cluster.SetLoaded(static_cast<int>(1000 * done / all));
        return {};
    };
    WEFT_TRY(OnThreads(threads, items.size(), load));
    const auto values = static_cast<program::ValueId>(training.program().values.size());
    WEFT_TRY(LoadFrozen(training, 0, values, source, cluster));
    cluster.SetLoaded(1000);
    return {};
}

Status TrainState::ReadWeights(const OwnPart& part, int64_t first, std::span<float> out) const {
    if (average_factor_ == 0) return training_->ReadFloats(part.weights, first, out);
    WEFT_TRY(training_->ReadFloats(part.average, first, out));
    if (!between_) {
        for (float& weight : out) weight *= average_factor_;
        return {};
    }
    std::vector<float> weights(out.size());
    WEFT_TRY(training_->ReadFloats(part.weights, first, weights));
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = weights[i] + average_factor_ * (out[i] - weights[i]);
    }
    return {};
}

Status TrainState::FindSole(cluster::Cluster& cluster, int replica,
                            const std::vector<FlatBucket>& units) {
    WEFT_ASSIGN(const AllHoldings all, GatherHoldings(cluster, ToText(units), replica));
    WEFT_ASSIGN(Holdings earlier, EarlierHoldings(all, static_cast<size_t>(cluster.rank()), replica,
                                                  trained_tensors_));
    int64_t mine = 0;
    for (OwnPart& part : parts_) {
        const FlatBucket& unit = *part.unit;
        if (unit.whole && replica > 0) continue;
        for (const FlatBucket::Member& member : unit.members) {
            const Holding own = HoldingOf(member.weight);
            std::vector<ElementRange> rows{{own.row, own.row + own.rows}};
            for (const Holding& other : earlier[own.tensor]) {
                const bool same =
                    other.col < own.col + own.cols && own.col < other.col + other.cols;
                if (same) rows = Without(rows, {other.row, other.row + other.rows});
            }
            for (const ElementRange& range : rows) {
                const int64_t begin = member.begin + (range.begin - own.row) * own.cols;
                const int64_t end = member.begin + (range.end - own.row) * own.cols;
                const ElementRange sole{std::max(begin, unit.own_begin),
                                        std::min(end, unit.own_begin + unit.own_count)};
                if (sole.begin >= sole.end) continue;
                part.sole.push_back(sole);
                mine += sole.end - sole.begin;
            }
        }
    }
    WEFT_ASSIGN(const std::vector<std::string> counts,
                cluster.AllGather("parameters", std::to_string(mine), Deadline::In(kAgreeMs)));
    parameters_ = 0;
    for (const std::string& text : counts) parameters_ += std::strtoll(text.c_str(), nullptr, 10);
    return {};
}

// Reads a member of a unit: replicated weights whole, and only the own part of a sharded unit.
Status TrainState::LoadMember(const OwnPart& part, const FlatBucket::Member& member,
                              const model_files::ModelSource& source,
                              const cluster::Cluster& cluster, std::mutex& writes) {
    const FlatBucket& unit = *part.unit;
    const ElementRange wanted = unit.weights_shared
                                    ? ElementRange{unit.own_begin, unit.own_begin + unit.own_count}
                                    : ElementRange{0, unit.elements};
    const int64_t elements = member.weight.shape.Elements(0, 0);
    const int64_t begin = std::max(wanted.begin - member.begin, int64_t{0});
    const int64_t end = std::min(wanted.end - member.begin, elements);
    if (begin >= end) return {};
    if (cluster.stop_requested()) {
        return MakeError(ErrorCode::kCancelled, "stopped by the user");
    }
    return ReadElements(source, member.weight, begin, end,
                        [&](int64_t first, std::span<const float> values) {
                            return Store(part, member.begin + first, values, writes);
                        });
}

Status LoadFrozen(backend::Executable& executable, program::ValueId first, program::ValueId end,
                  const model_files::ModelSource& source, const cluster::Cluster& cluster) {
    // A device may have pinned this thread to one core, which new threads would inherit.
    const PinnedThread pinned(cluster.cores());
    const program::Program& program = executable.program();
    const size_t threads = std::min(kMostLoaders, cluster.cores().size());
    const auto values = static_cast<size_t>(end - first);
    return OnThreads(threads, values, [&](size_t i) -> Status {
        const auto id = first + static_cast<program::ValueId>(i);
        const program::Value& weight = program.value(id);
        const bool is_unit = weight.slice.name.empty();
        if (weight.storage != program::Storage::kWeight || is_unit) return {};
        if (cluster.stop_requested()) {
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        }
        const bool stack = weight.shape.rank == 3;
        const auto rows = [&](int64_t row, int64_t count, std::span<std::byte> out) {
            if (!stack) return ReadFrozenRows(source, weight, row, count, out);
            const int64_t of_matrix = weight.shape[1];
            return ReadFrozenRows(source, program::MatrixOf(weight, row / of_matrix),
                                  row % of_matrix, count, out);
        };
        return executable.LoadWeight(id, rows);
    });
}

// values: elements of the unit from `begin` on, all within the part that is in memory.
Status TrainState::Store(const OwnPart& part, int64_t begin, std::span<const float> values,
                         std::mutex& writes) {
    const FlatBucket& unit = *part.unit;
    const int64_t base = unit.weights_shared ? unit.own_begin : 0;
    WEFT_TRY(WriteAs(*training_, writes, unit.weights, unit.dtype, begin - base, values));
    if (part.copy == program::kNoValue) return {};
    const auto count = static_cast<int64_t>(values.size());
    const int64_t first = std::max(begin, unit.own_begin);
    const int64_t last = std::min(begin + count, unit.own_begin + unit.own_count);
    if (first >= last) return {};
    return WriteAs(
        *training_, writes, part.weights, DType::kF32, first - unit.own_begin,
        values.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first)));
}

}  // namespace weft::train
