#include "backend/transfer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "coll/sum.h"
#include "coll/wire.h"
#include "tensor/half_rows.h"

namespace weft::backend {
namespace {

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void Store(std::span<const float> sums, bool adds, std::span<float> share) {
    for (size_t i = 0; i < sums.size(); ++i) share[i] = adds ? share[i] + sums[i] : sums[i];
}

// Stores sums in a narrow type, a block at a time.
constexpr size_t kChecksumBlock = 1024;
void Store(DType dtype, std::span<const float> sums, bool adds, std::byte* share) {
    if (!adds) return NarrowRow(dtype, sums, share);
    float block[kChecksumBlock];
    for (size_t begin = 0; begin < sums.size(); begin += kChecksumBlock) {
        const std::span<const float> part =
            sums.subspan(begin, std::min(kChecksumBlock, sums.size() - begin));
        const std::span<float> all(block, part.size());
        WidenRow(dtype, share + 2 * begin, all);
        for (size_t i = 0; i < part.size(); ++i) all[i] += part[i];
        NarrowRow(dtype, all, share + 2 * begin);
    }
}

using program::OpKind;

// Converts between the types in which training computes.
void Convert(const HostValue& from, std::byte* to, DType dtype) {
    const auto count = static_cast<size_t>(from.rows * from.cols);
    if (from.dtype == dtype) {
        std::memcpy(to, from.data, from.bytes().size());
    } else if (dtype == DType::kF32) {
        WidenRow(from.dtype, from.data, {reinterpret_cast<float*>(to), count});
    } else {
        NarrowRow(dtype, {from.floats(), count}, to);
    }
}

std::vector<size_t> BytesOf(DType dtype, std::span<const int64_t> parts) {
    std::vector<size_t> bytes;
    for (const int64_t part : parts) bytes.push_back(static_cast<size_t>(RowBytes(dtype, part)));
    return bytes;
}

// Rows of at most this size are gathered in one all-gather, and the ranks' rows are then placed
// side by side.
constexpr int64_t kTogetherBytes = 1024;
Status GatherTogether(const program::AllGather& a, const HostValue& in, const HostValue& out,
                      coll::Comm& comm, const net::OpTag& tag) {
    std::vector<float> all(static_cast<size_t>(out.rows * out.cols));
    std::copy_n(in.floats(), in.rows * in.cols, all.data() + a.begin * out.rows);
    std::vector<size_t> bytes = BytesOf(DType::kF32, a.parts);
    for (size_t& part : bytes) part *= static_cast<size_t>(out.rows);
    WEFT_TRY(comm.AllGather(std::as_writable_bytes(std::span(all)), bytes, tag));
    const float* from = all.data();
    int64_t begin = 0;
    for (const int64_t cols : a.parts) {
        for (int64_t row = 0; row < out.rows; ++row, from += cols) {
            std::copy_n(from, cols, out.floats() + row * out.cols + begin);
        }
        begin += cols;
    }
    return {};
}

Status Gather(const program::AllGather& a, const HostValue& in, const HostValue& out,
              coll::Comm& comm, const net::OpTag& tag) {
    const bool narrow = RowBytes(DType::kF32, out.cols) <= kTogetherBytes;
    if (narrow && out.rows > 1) return GatherTogether(a, in, out, comm, tag);
    const std::vector<size_t> bytes = BytesOf(DType::kF32, a.parts);
    for (int64_t row = 0; row < out.rows; ++row) {
        float* to = out.floats() + row * out.cols;
        std::copy_n(in.floats() + row * in.cols, in.cols, to + a.begin);
        const std::span<float> all(to, static_cast<size_t>(out.cols));
        WEFT_TRY(comm.AllGather(std::as_writable_bytes(all), bytes, tag));
    }
    return {};
}

Status GatherRowShares(const HostValue& in, const HostValue& out, coll::Comm& comm,
                       const net::OpTag& tag) {
    std::vector<int64_t> parts = RowParts(out.rows, comm.size());
    for (int64_t& part : parts) part *= out.cols;
    const int64_t begin = FirstRow(out.rows, comm) * out.cols;
    Convert(in, out.data + RowBytes(out.dtype, begin), out.dtype);
    return comm.AllGather(out.bytes(), BytesOf(out.dtype, parts), tag);
}

Status ReduceRowShares(const HostValue& in, const HostValue& out, coll::Comm& comm,
                       const net::OpTag& tag) {
    std::vector<int64_t> parts = RowParts(in.rows, comm.size());
    for (int64_t& part : parts) part *= in.cols;
    return ReduceScatterInto(&comm, in.bytes(), in.dtype, parts, FirstRow(in.rows, comm) * in.cols,
                             out.bytes(), false, tag);
}

std::vector<size_t> BytesOf(const HostValue& rows, std::span<const int64_t> counts, int64_t cols) {
    std::vector<size_t> bytes;
    for (const int64_t count : counts) {
        bytes.push_back(static_cast<size_t>(RowBytes(rows.dtype, count * cols)));
    }
    return bytes;
}

// Own rows, all columns -> all rows, own columns.
Status ToColumns(const program::AllToAll& a, const HostValue& in, const HostValue& out,
                 coll::Comm& comm, const net::OpTag& tag) {
    WEFT_CHECK(in.dtype == out.dtype);
    const int64_t width = RowBytes(in.dtype, 1), stride = RowBytes(in.dtype, in.cols);
    std::vector<size_t> counts;
    size_t all = 0;
    for (const program::ColumnRange& part : a.parts) {
        counts.push_back(static_cast<size_t>(in.rows * part.count * width));
        all += counts.back();
    }
    const auto packed = std::make_unique_for_overwrite<std::byte[]>(all);
    std::byte* to = packed.get();
    for (const program::ColumnRange& part : a.parts) {
        const std::byte* from = in.data + part.begin * width;
        for (int64_t row = 0; row < in.rows; ++row, from += stride, to += part.count * width) {
            std::memcpy(to, from, static_cast<size_t>(part.count * width));
        }
    }
    return comm.AllToAll({packed.get(), all}, counts, out.bytes(),
                         BytesOf(out, RowParts(out.rows, comm.size()), out.cols), tag);
}

// Places the parts of rows, one part after another, in their columns of `out`. They do not overlap.
void PlaceColumns(const program::AllToAll& a, const std::byte* from, const HostValue& out) {
    const int64_t width = RowBytes(out.dtype, 1), stride = out.cols * width;
    for (const program::ColumnRange& part : a.parts) {
        std::byte* to = out.data + part.begin * width;
        const int64_t bytes = part.count * width;
        for (int64_t row = 0; row < out.rows; ++row, from += bytes, to += stride) {
            std::memcpy(to, from, static_cast<size_t>(bytes));
        }
    }
}

// As PlaceColumns, but each column of `out` is the float32 sum of the parts that have it.
void SumColumns(const program::AllToAll& a, std::byte* parts, const HostValue& out) {
    std::vector<float> sums(static_cast<size_t>(out.cols)), wide(sums.size());
    for (int64_t row = 0; row < out.rows; ++row) {
        std::ranges::fill(sums, 0.0f);
        std::byte* from = parts;
        for (const program::ColumnRange& part : a.parts) {
            Convert({from + RowBytes(out.dtype, row * part.count), out.dtype, 1, part.count},
                    std::as_writable_bytes(std::span(wide)).data(), DType::kF32);
            for (int64_t i = 0; i < part.count; ++i) {
                sums[static_cast<size_t>(part.begin + i)] += wide[static_cast<size_t>(i)];
            }
            from += RowBytes(out.dtype, out.rows * part.count);
        }
        Convert({std::as_writable_bytes(std::span(sums)).data(), DType::kF32, 1, out.cols},
                out.data + RowBytes(out.dtype, row * out.cols), out.dtype);
    }
}

// All rows, own columns -> own rows, all columns.
Status ToRows(const program::AllToAll& a, const HostValue& in, const HostValue& out,
              coll::Comm& comm, const net::OpTag& tag) {
    WEFT_CHECK(in.dtype == out.dtype);
    std::vector<int64_t> columns;
    for (const program::ColumnRange& part : a.parts) columns.push_back(part.count);
    const int64_t all = std::accumulate(columns.begin(), columns.end(), int64_t{0});
    const auto bytes = static_cast<size_t>(RowBytes(in.dtype, out.rows * all));
    const auto packed = std::make_unique_for_overwrite<std::byte[]>(bytes);
    WEFT_TRY(comm.AllToAll(in.bytes(), BytesOf(in, RowParts(in.rows, comm.size()), in.cols),
                           {packed.get(), bytes}, BytesOf(out, columns, out.rows), tag));
    if (all == out.cols) {  // (together, the parts cover all columns)
        PlaceColumns(a, packed.get(), out);
    } else {
        SumColumns(a, packed.get(), out);
    }
    return {};
}

// (A share may already lie in its place.)
Status GatherUnit(const program::ZeroAllGather& a, const HostValue& in, const HostValue& out,
                  coll::Comm* data, const net::OpTag& tag) {
    std::byte* const own = out.data + RowBytes(in.dtype, a.begin);
    if (own != in.data) std::ranges::copy(in.bytes(), own);
    return data == nullptr ? Status()
                           : data->AllGather(out.bytes(), BytesOf(in.dtype, a.parts), tag);
}

coll::Comm* GroupOf(program::Group group, const Communicators& groups) {
    switch (group) {
        case program::Group::kTensor: return groups.tensor;
        case program::Group::kData: return groups.data;
        case program::Group::kTied: return groups.tied;
        case program::Group::kWorld: return groups.world;
        case program::Group::kPipeline: break;  // Send and Recv
    }
    return nullptr;
}

// Narrow values are reduced in the rank's own part, with one rounding per sum, and then gathered on
// all ranks.
Status SumInPlace(const HostValue& x, coll::Comm* comm, const net::OpTag& tag) {
    if (comm == nullptr) return {};
    if (x.dtype == DType::kF64) return comm->AllReduce(As<double>(x.bytes()), tag);
    if (x.dtype == DType::kF32) return comm->AllReduce(As<float>(x.bytes()), tag);
    const int64_t elements = x.rows * x.cols, begin = FirstRow(elements, *comm);
    const std::vector<int64_t> parts = RowParts(elements, comm->size());
    const auto rank = static_cast<size_t>(comm->rank());
    const auto own = x.bytes().subspan(static_cast<size_t>(RowBytes(x.dtype, begin)),
                                       static_cast<size_t>(RowBytes(x.dtype, parts[rank])));
    WEFT_TRY(ReduceScatterInto(comm, x.bytes(), x.dtype, parts, begin, own, false, tag));
    return comm->AllGather(x.bytes(), BytesOf(x.dtype, parts), tag);
}

// A narrower wire type rounds float32 values.
coll::WireType WireOf(SumWire wire) {
    switch (wire) {
        case SumWire::kAuto:
        case SumWire::kF64:
        case SumWire::kF32: break;
        case SumWire::kBF16: return coll::WireType::kBF16;
        case SumWire::kQ8: return coll::WireType::kQ8;
    }
    return coll::WireType::kFull;
}

Status SumRows(const HostValue& in, const HostValue& out, SumWire wire, bool steady,
               coll::Comm* comm, const net::OpTag& tag) {
    const bool rounds = in.dtype == DType::kF64 && out.dtype == DType::kF32;
    const bool narrows = wire != SumWire::kF64 && out.dtype == DType::kF32 &&
                         in.cols >= static_cast<int64_t>(coll::kQ8Block);
    if (rounds && !narrows) {
        return comm->AllReduce(As<double>(in.bytes()), As<float>(out.bytes()), tag);
    }
    const std::span<float> sums = As<float>(out.bytes());
    if (rounds) {
        coll::RoundToFloat(reinterpret_cast<const double*>(in.data), sums.data(), sums.size());
    } else {
        std::ranges::copy(in.bytes(), out.data);
    }
    if (!narrows) return SumInPlace(out, comm, tag);
    return comm->AllReduce(sums, tag, {coll::Algorithm::kAuto, WireOf(wire), steady});
}

HostValue RowsOf(const HostValue& all, int64_t begin, int64_t count) {
    return {all.data + RowBytes(all.dtype, begin * all.cols), all.dtype, count, all.cols};
}

Status SumOverTensorRanks(const HostValue& in, const HostValue& out, const Communicators& groups,
                          const net::OpTag& tag) {
    if (groups.prompt_rows.empty() || groups.prompt_wire == groups.wire) {
        return SumRows(in, out, groups.wire, false, groups.tensor, tag);
    }
    int64_t row = 0;
    const auto sum_to = [&](int64_t end, SumWire wire, bool steady) -> Status {
        if (end == row) return {};
        const int64_t begin = std::exchange(row, end);
        return SumRows(RowsOf(in, begin, end - begin), RowsOf(out, begin, end - begin), wire,
                       steady, groups.tensor, tag);
    };
    for (const RowRange& prompt : groups.prompt_rows) {
        WEFT_TRY(sum_to(prompt.begin, groups.wire, false));
        WEFT_TRY(sum_to(prompt.begin + prompt.count, groups.prompt_wire, true));
    }
    return sum_to(in.rows, groups.wire, false);
}

}  // namespace

int64_t SumBytes(SumWire wire, DType dtype, int64_t values) {
    if (wire == SumWire::kF64) return RowBytes(dtype, values);
    return static_cast<int64_t>(
        coll::WireBytes(WireOf(wire), static_cast<size_t>(values), sizeof(float)));
}

int64_t SumBytes(const Communicators& groups, DType dtype, int64_t rows, int64_t cols) {
    int64_t narrow = 0;
    for (const RowRange& prompt : groups.prompt_rows) narrow += prompt.count;
    return SumBytes(groups.wire, dtype, (rows - narrow) * cols) +
           SumBytes(groups.prompt_wire, dtype, narrow * cols);
}

void FindPromptRows(std::span<const StepSequence> sequences, int64_t begin, int64_t count,
                    std::vector<RowRange>& ranges) {
    ranges.clear();
    for (const StepSequence& s : sequences) {
        const int64_t first = std::max<int64_t>(s.row_begin, begin);
        const int64_t end = std::min<int64_t>(s.row_begin + s.prompt_rows, begin + count);
        if (first >= end) continue;
        if (!ranges.empty() && ranges.back().begin + ranges.back().count == first - begin) {
            ranges.back().count += end - first;
        } else {
            ranges.push_back({first - begin, end - first});
        }
    }
}

std::vector<int64_t> RowParts(int64_t rows, int64_t ranks) {
    std::vector<int64_t> parts;
    for (int64_t r = 0; r < ranks; ++r) {
        parts.push_back(rows * (r + 1) / ranks - rows * r / ranks);
    }
    return parts;
}

int64_t FirstRow(int64_t rows, const coll::Comm& comm) {
    return rows * comm.rank() / comm.size();
}

RowRange OwnRows(int64_t rows, const Communicators& groups) {
    const coll::Comm* const comm = groups.rows();
    if (comm == nullptr) return {0, rows};
    const int64_t begin = FirstRow(rows, *comm);
    return {begin, rows * (comm->rank() + 1) / comm->size() - begin};
}

Step WithOwnTokens(const Step& step, const Communicators& groups) {
    Step own = step;
    if (groups.context == nullptr) return own;
    const RowRange rows = OwnRows(std::ssize(step.tokens), groups);
    const auto begin = static_cast<size_t>(rows.begin), count = static_cast<size_t>(rows.count);
    own.tokens = step.tokens.subspan(begin, count);
    own.positions = step.positions.subspan(begin, count);
    if (step.noise_keys.empty()) return own;
    own.noise_keys = step.noise_keys.subspan(begin, count);
    own.noise_amplitudes = step.noise_amplitudes.subspan(begin, count);
    return own;
}

Status ReduceScatterInto(coll::Comm* comm, std::span<std::byte> all, DType dtype,
                         std::span<const int64_t> parts, int64_t begin, std::span<std::byte> share,
                         bool adds, const net::OpTag& tag) {
    const std::vector<size_t> counts(parts.begin(), parts.end());
    if (dtype == DType::kF32) {
        if (comm != nullptr) WEFT_TRY(comm->ReduceScatter(As<float>(all), counts, tag));
        const std::span<float> to = As<float>(share);
        Store(As<float>(all).subspan(static_cast<size_t>(begin), to.size()), adds, to);
        return {};
    }
    if (comm != nullptr) {
        const coll::WireType wire =
            dtype == DType::kF16 ? coll::WireType::kF16 : coll::WireType::kBF16;
        const auto take = [&](size_t at, std::span<const float> sums) {
            Store(dtype, sums, adds, share.data() + 2 * at);
        };
        return comm->ReduceScatter(wire, As<const uint16_t>(all), counts, take, tag);
    }
    float block[kChecksumBlock];
    for (size_t at = 0; at < share.size() / 2; at += kChecksumBlock) {
        const std::span<float> sums(block, std::min(kChecksumBlock, share.size() / 2 - at));
        WidenRow(dtype, all.data() + 2 * (static_cast<size_t>(begin) + at), sums);
        Store(dtype, sums, adds, share.data() + 2 * at);
    }
    return {};
}

Status RunTransfer(const program::Op& op, const HostValue& in, const HostValue& out,
                   const Communicators& groups, const net::OpTag& tag) {
    switch (op.kind()) {
        case OpKind::kAllReduce: return SumOverTensorRanks(in, out, groups, tag);
        case OpKind::kSumOver:
            return SumInPlace(out, GroupOf(op.as<program::SumOver>().group, groups), tag);
        case OpKind::kGatherRows: return GatherRowShares(in, out, *groups.tensor, tag);
        case OpKind::kReduceScatterRows: return ReduceRowShares(in, out, *groups.tensor, tag);
        case OpKind::kAllToAll: {
            const auto& a = op.as<program::AllToAll>();
            return (a.to_columns ? ToColumns : ToRows)(a, in, out, *groups.context, tag);
        }
        case OpKind::kAllGather:
            return Gather(op.as<program::AllGather>(), in, out, *groups.tensor, tag);
        case OpKind::kZeroAllGather:
            return GatherUnit(op.as<program::ZeroAllGather>(), in, out, groups.data, tag);
        case OpKind::kZeroReduceScatter: {
            const auto& a = op.as<program::ZeroReduceScatter>();
            return ReduceScatterInto(groups.data, in.bytes(), in.dtype, a.parts, a.begin,
                                     out.bytes(), a.adds, tag);
        }
        case OpKind::kSend:
            return groups.stages->Send(in.bytes(), op.as<program::Send>().peer, tag);
        case OpKind::kRecv:
            return groups.stages->Recv(out.bytes(), op.as<program::Recv>().peer, tag);
        default: WEFT_CHECK(!"a transfer");
    }
    return {};
}

}  // namespace weft::backend
