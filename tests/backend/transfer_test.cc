// All-reduces over tensor ranks for each wire type: all ranks hold the same bits, within the type's
// error of the exact sum, and SumBytes gives the bytes sent.
#include "backend/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "coll/wire.h"
#include "net/local.h"
#include "support/ranks.h"

namespace weft::backend {
namespace {

constexpr size_t kSumWindow = size_t{1} << 20;
const program::Op kTransferOp{program::AllReduce{}, {0}, {1}};

struct WireSum {
    int ranks;
    DType dtype;  // of the addends
    int64_t rows, cols;
    SumWire wire = SumWire::kF64;
    SumWire prompt_wire = SumWire::kF64;
    std::vector<RowRange> prompt_rows{};
    int64_t first_row = 0;  // row r has the addends of row first_row + r
};

// Uniform in +-2^0 to +-2^6, with all bits of a double.
double SumAddend(int rank, size_t i) {
    uint64_t mixed = (i * 7 + static_cast<size_t>(rank) + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 31)) * 0xD1B54A32D192ED03ull;
    mixed ^= mixed >> 29;
    const double unit = static_cast<double>(mixed >> 11) * 0x1p-52 - 1;
    return std::ldexp(unit, static_cast<int>(i % 7));
}

// Result of each rank; sent: bytes sent by rank 0.
std::vector<std::vector<float>> RunSum(const WireSum& sum, net::Transport transport,
                                       uint64_t& sent) {
    auto fabrics = net::MakeLocalFabrics(sum.ranks, transport, kSumWindow).value();
    std::vector<std::vector<float>> results(static_cast<size_t>(sum.ranks));
    std::vector<int> everyone;
    for (int rank = 0; rank < sum.ranks; ++rank) everyone.push_back(rank);
    const auto count = static_cast<size_t>(sum.rows * sum.cols);
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        auto comm = coll::Comm::Make(fabric, everyone, {0, kSumWindow, 0, 4}, 10'000).value();
        const std::vector<int> one_host(everyone.size(), 0);
        EXPECT_TRUE(comm->SetHosts(one_host).ok());
        comm->SetTuning(coll::Tuning::BuiltIn({.ranks = sum.ranks, .hosts = 1}));
        std::vector<double> wide(count);
        std::vector<float> narrow(count), out(count);
        const auto first = static_cast<size_t>(sum.first_row * sum.cols);
        for (size_t i = 0; i < count; ++i) {
            wide[i] = SumAddend(fabric.rank, first + i);
            narrow[i] = static_cast<float>(wide[i]);
        }
        std::byte* const in = sum.dtype == DType::kF64
                                  ? reinterpret_cast<std::byte*>(wide.data())
                                  : reinterpret_cast<std::byte*>(narrow.data());
        Communicators groups{.tensor = comm.get()};
        groups.wire = sum.wire;
        groups.prompt_wire = sum.prompt_wire;
        groups.prompt_rows = sum.prompt_rows;
        const uint64_t before = comm->sent_bytes();
        const Status status =
            RunTransfer(kTransferOp, {in, sum.dtype, sum.rows, sum.cols},
                        {reinterpret_cast<std::byte*>(out.data()), DType::kF32, sum.rows, sum.cols},
                        groups, {"all_reduce", 0, 0});
        EXPECT_TRUE(status.ok());
        if (fabric.rank == 0) sent = comm->sent_bytes() - before;
        results[static_cast<size_t>(fabric.rank)] = std::move(out);
    });
    return results;
}

// Allowed error of element i: n roundings of addends, one of the sum if the sum is sent, too
// (two_shot), and the float32 rounding of the sum.
double SumAllowed(const WireSum& sum, size_t i, const std::vector<double>& peaks) {
    double sizes = 0, peak = 0;
    for (int rank = 0; rank < sum.ranks; ++rank) {
        sizes += std::abs(SumAddend(rank, i));
        peak += peaks[static_cast<size_t>(rank)];
    }
    const double f32 = sum.ranks * 0x1p-23 * sizes;
    switch (sum.wire) {
        case SumWire::kAuto:
        case SumWire::kF64:
        case SumWire::kF32: return f32;
        case SumWire::kBF16: return f32 + 2.1 * 0x1p-8 * sizes;
        case SumWire::kQ8: return f32 + 2.1 * coll::kQ8Error * peak;
    }
    return 0;
}

void ExpectSum(const WireSum& sum, net::Transport transport) {
    SCOPED_TRACE(std::to_string(sum.ranks) + " ranks, wire " +
                 std::to_string(static_cast<int>(sum.wire)) + ", " + Info(sum.dtype).name.data());
    uint64_t sent = 0;
    const auto results = RunSum(sum, transport, sent);
    const auto count = static_cast<size_t>(sum.rows * sum.cols);
    for (const auto& result : results) {
        EXPECT_EQ(std::memcmp(result.data(), results[0].data(), count * sizeof(float)), 0);
    }
    std::vector<double> peaks;
    for (int rank = 0; rank < sum.ranks; ++rank) {
        double peak = 0;
        for (size_t i = 0; i < count; ++i) peak = std::max(peak, std::abs(SumAddend(rank, i)));
        peaks.push_back(peak);
    }
    double worst = 0;  // relative to the allowed error
    for (size_t i = 0; i < count; ++i) {
        double exact = 0;
        for (int rank = 0; rank < sum.ranks; ++rank) exact += SumAddend(rank, i);
        const double off = std::abs(static_cast<double>(results[0][i]) - exact);
        worst = std::max(worst, off / SumAllowed(sum, i, peaks));
        ASSERT_TRUE(off <= SumAllowed(sum, i, peaks))
            << i << ": " << results[0][i] << " for " << exact;
    }
    // A narrow type really rounds.
    const bool rounds = sum.wire == SumWire::kBF16 || sum.wire == SumWire::kQ8;
    if (rounds) {
        EXPECT_GT(worst, 0.05);
    }
    if (count <= 4096) {  // one-shot: once to each other rank
        const auto once =
            static_cast<uint64_t>(SumBytes(sum.wire, sum.dtype, static_cast<int64_t>(count)));
        EXPECT_EQ(sent, once * static_cast<uint64_t>(sum.ranks - 1));
    }
}

constexpr SumWire kSumWires[] = {SumWire::kF64, SumWire::kF32, SumWire::kBF16, SumWire::kQ8};

TEST(TransferWire, EveryWireSumsUpWithinItsError) {
    for (const net::Transport transport : {net::Transport::kShm, net::Transport::kTcp}) {
        for (const int ranks : {2, 3}) {
            for (const SumWire wire : kSumWires) {
                ExpectSum({ranks, DType::kF64, 1, 576, wire}, transport);
                ExpectSum({ranks, DType::kF64, 9, 999, wire}, transport);  // two-shot
            }
        }
    }
}

// For devices that already sum in float32.
TEST(TransferWire, Float32SumsNarrowAsWell) {
    for (const SumWire wire : kSumWires)
        ExpectSum({2, DType::kF32, 3, 200, wire}, net::Transport::kShm);
    uint64_t sent = 0;
    const auto as_they_are =
        RunSum({3, DType::kF32, 3, 200, SumWire::kF64}, net::Transport::kShm, sent);
    EXPECT_EQ(RunSum({3, DType::kF32, 3, 200, SumWire::kF32}, net::Transport::kShm, sent),
              as_they_are);
}

// Squares of a norm: two values per row.
TEST(TransferWire, ShortRowsStayAsTheyAre) {
    uint64_t wide_sent = 0;
    const auto wide =
        RunSum({2, DType::kF64, 9, 2, SumWire::kF64}, net::Transport::kShm, wide_sent);
    for (const SumWire wire : kSumWires) {
        uint64_t sent = 0;
        EXPECT_EQ(RunSum({2, DType::kF64, 9, 2, wire}, net::Transport::kShm, sent), wide);
        EXPECT_EQ(sent, wide_sent);
    }
}

// Rows of prompts are narrow, other rows keep their bits, and the bits of a row do not depend on
// the number of rows: not even where a large sum takes another algorithm.
TEST(TransferWire, RowsOfPromptsHaveTheirOwnWire) {
    constexpr int64_t kRows = 90, kWidth = 640;
    const auto row_of = [](const std::vector<float>& sums, int64_t row) {
        const auto begin = sums.begin() + row * kWidth;
        return std::vector<float>(begin, begin + kWidth);
    };
    for (const int ranks : {2, 3}) {
        for (const DType dtype : {DType::kF64, DType::kF32}) {
            uint64_t sent = 0, mixed_sent = 0;
            const WireSum wide{ranks, dtype, kRows, kWidth, SumWire::kF64};
            const auto want = RunSum(wide, net::Transport::kTcp, sent);
            WireSum mixed = wide;
            mixed.prompt_wire = SumWire::kBF16;
            mixed.prompt_rows = {{2, 1}, {10, 70}};
            const auto got = RunSum(mixed, net::Transport::kTcp, mixed_sent);
            EXPECT_LT(mixed_sent, sent);
            const std::vector<float>& sums = got[0];
            for (const auto& rank : got) EXPECT_EQ(rank, sums);
            for (int64_t row = 0; row < kRows; ++row) {
                const bool narrow = row == 2 || (row >= 10 && row < 80);
                EXPECT_EQ(row_of(sums, row) == row_of(want[0], row), !narrow) << row;
            }
            WireSum few{ranks, dtype, 2, kWidth, SumWire::kF64, SumWire::kBF16, {{0, 2}}, 11};
            const auto alone = RunSum(few, net::Transport::kTcp, sent);
            EXPECT_EQ(row_of(alone[0], 0), row_of(sums, 11)) << ranks;
            EXPECT_EQ(row_of(alone[0], 1), row_of(sums, 12)) << ranks;
        }
    }
}

TEST(TransferWire, RowsOfPromptsOfAStep) {
    std::vector<StepSequence> sequences = {{0, 1, 0, {}}, {1, 5, 0, {}}, {6, 4, 0, {}}};
    sequences[1].prompt_rows = 5;
    sequences[2].prompt_rows = 3;
    std::vector<RowRange> ranges;
    FindPromptRows(sequences, 0, 10, ranges);
    EXPECT_EQ(ranges, (std::vector<RowRange>{{1, 8}}));
    FindPromptRows(sequences, 4, 3, ranges);
    EXPECT_EQ(ranges, (std::vector<RowRange>{{0, 3}}));
    FindPromptRows(sequences, 9, 1, ranges);
    EXPECT_TRUE(ranges.empty());
    const Communicators groups{.wire = SumWire::kF64,
                               .prompt_wire = SumWire::kBF16,
                               .prompt_rows = std::span(ranges = {{1, 8}})};
    EXPECT_EQ(SumBytes(groups, DType::kF64, 10, 64), (2 * 8 + 8 * 2) * 64);
}

TEST(TransferWire, BytesOfAWire) {
    EXPECT_EQ(SumBytes(SumWire::kF64, DType::kF64, 128), 1024);
    EXPECT_EQ(SumBytes(SumWire::kF64, DType::kF32, 128), 512);
    EXPECT_EQ(SumBytes(SumWire::kF32, DType::kF64, 128), 512);
    EXPECT_EQ(SumBytes(SumWire::kBF16, DType::kF64, 128), 256);
    EXPECT_EQ(SumBytes(SumWire::kQ8, DType::kF32, 128), 136);
}

// Each row has the columns of all ranks side by side, whether or not rows are sent together.
TEST(AllGather, PutsTheColumnsOfAllRanksSideBySide) {
    for (const std::vector<int64_t>& parts :
         std::vector<std::vector<int64_t>>{{3, 3}, {2, 0, 5}, {200, 57}, {300, 100, 7}}) {
        const auto ranks = static_cast<int>(parts.size());
        std::vector<int> everyone;
        for (int rank = 0; rank < ranks; ++rank) everyone.push_back(rank);
        auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, kSumWindow).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            auto comm = coll::Comm::Make(fabric, everyone, {0, kSumWindow, 0, 4}, 10'000).value();
            const auto own = parts[static_cast<size_t>(fabric.rank)];
            program::AllGather gather;
            gather.parts = parts;
            int64_t cols = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                if (rank == fabric.rank) gather.begin = cols;
                cols += parts[static_cast<size_t>(rank)];
            }
            const program::Op op{gather, {0}, {1}};
            for (const int64_t rows : {1, 2, 9, 70}) {
                std::vector<float> in(static_cast<size_t>(rows * own) + 1), expected, out;
                for (int64_t i = 0; i < rows * cols; ++i) {
                    expected.push_back(static_cast<float>(i));
                    const int64_t row = i / cols, col = i % cols - gather.begin;
                    if (col < 0 || col >= own) continue;
                    in[static_cast<size_t>(row * own + col)] = expected.back();
                }
                out.resize(expected.size());
                const auto value = [](std::vector<float>& x, int64_t r, int64_t c) {
                    return HostValue{reinterpret_cast<std::byte*>(x.data()), DType::kF32, r, c};
                };
                const Status status = RunTransfer(op, value(in, rows, own), value(out, rows, cols),
                                                  {.tensor = comm.get()}, {"all_gather", 0, 0});
                EXPECT_TRUE(status.ok());
                EXPECT_EQ(out, expected) << rows << " rows of " << cols;
            }
        });
    }
}

}  // namespace
}  // namespace weft::backend
