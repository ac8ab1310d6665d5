// The loops around a micro-kernel, written once for all instruction sets.
//
// Micro is the type of an instruction set (avx2/micro.h, avx512/micro.h, amx/micro.h):
//   kRows, kCols   of a tile of C
//   kStep          what a panel's depth is rounded up to
//   kMostDepth     of a block of packed panels: a multiple of kStep
//   kTileDepth     of the part of them that is multiplied at a time, so that it stays in L1
//   kSlackBytes    that packing may spoil behind a panel
//   Session        an object that lives as long as tiles are made
//   PackA, PackB   (Operand, lanes, depth, to): a panel of kRows or kCols lanes
//   Tile           (a, b, depth, c, c_stride, add): a whole tile, C = A . B or C += A . B
#pragma once

#include <span>

#include "base/check.h"
#include "kernels/dense/cache.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/pack.h"
#include "kernels/kernels.h"

namespace weft::kernels::dense {

constexpr int64_t RoundUp(int64_t count, int64_t grain) {
    return (count + grain - 1) / grain * grain;
}

// A panel of kLanes lanes: 4 bytes for each unit, 2 for each element of a bfloat16 pair.
template <typename Micro>
constexpr int64_t PanelBytes(int64_t lanes, int64_t depth) {
    return lanes * RoundUp(depth, Micro::kStep) * 4 / Micro::kUnitDepth;
}

template <typename Micro, typename T>
void PackAPanels(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
    for (int64_t i = 0; i < lanes; i += Micro::kRows) {
        Micro::PackA(from.From(i, 0), std::min(Micro::kRows, lanes - i), depth, to);
        to += PanelBytes<Micro>(Micro::kRows, depth);
    }
}
template <typename Micro, typename T>
void PackBPanels(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
    for (int64_t i = 0; i < lanes; i += Micro::kCols) {
        Micro::PackB(from.From(i, 0), std::min(Micro::kCols, lanes - i), depth, to);
        to += PanelBytes<Micro>(Micro::kCols, depth);
    }
}

// The first `rows` and `cols` of a tile.
template <typename Micro>
inline void TileOf(const std::byte* a, const std::byte* b, int64_t depth, float* c,
                   int64_t c_stride, int64_t rows, int64_t cols, bool add) {
    if (rows >= Micro::kRows && cols >= Micro::kCols) {
        return Micro::Tile(a, b, depth, c, c_stride, add);
    }
    rows = std::min(rows, Micro::kRows);
    cols = std::min(cols, Micro::kCols);
    alignas(64) float tile[Micro::kRows * Micro::kCols];
    if (add) {
        std::fill_n(tile, Micro::kRows * Micro::kCols, 0.0f);
        for (int64_t i = 0; i < rows; ++i) {
            std::copy_n(c + i * c_stride, cols, tile + i * Micro::kCols);
        }
    }
    Micro::Tile(a, b, depth, tile, Micro::kCols, add);
    for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(tile + i * Micro::kCols, cols, c + i * c_stride);
    }
}

// Parts as a grid of rows x cols: the one that packs least.
struct Grid {
    int rows, cols;
};
template <typename Micro>
Grid GridOf(const GemmArgs& args, int parts) {
    Grid best{1, parts};
    int64_t least = INT64_MAX;
    for (int rows = 1; rows <= parts; ++rows) {
        if (parts % rows != 0) continue;
        const int cols = parts / rows;
        const int64_t height = RoundUp((args.m + rows - 1) / rows, Micro::kRows);
        const int64_t width = RoundUp((args.n + cols - 1) / cols, Micro::kCols);
        // Arithmetic comes first; one packed element costs some sixteen of its products.
        const int64_t cost = height * width + 16 * (height + width);
        if (cost < least) {
            least = cost;
            best = {rows, cols};
        }
    }
    return best;
}

// Bytes of the panels that stay in L2 while the others go by.
template <typename Micro>
int64_t HeldBytes() {
    const int64_t panel =
        PanelBytes<Micro>(std::max(Micro::kRows, Micro::kCols), Micro::kMostDepth);
    return std::max(panel, L2Bytes() / 2);
}

template <typename Micro>
int64_t BlockedScratchBytes() {
    const int64_t panel =
        PanelBytes<Micro>(std::max(Micro::kRows, Micro::kCols), Micro::kMostDepth);
    return HeldBytes<Micro>() + panel + 2 * Micro::kSlackBytes + 3 * 64;
}

// One part of a product. Blocks of k: for each, panels of one operand are packed and held (all of
// them, or as many as L2 has room for), and those of the other one are packed one by one and
// multiplied with all that are held.
template <typename Micro, typename TA, typename TB>
class Blocked {
  public:
    Blocked(const GemmArgs& args, Operand<TA> a, Operand<TB> b, std::span<std::byte> scratch)
        : args_(args), a_(a), b_(b) {
        WEFT_CHECK(static_cast<int64_t>(scratch.size()) >= BlockedScratchBytes<Micro>());
        const uintptr_t address = reinterpret_cast<uintptr_t>(scratch.data());
        held_ = scratch.data() + (64 - address % 64) % 64;
        passing_ = held_ + RoundUp(HeldBytes<Micro>() + Micro::kSlackBytes, 64);
    }

    void Run(int part, int parts) {
        const Grid grid = GridOf<Micro>(args_, parts);
        rows_ = Share(args_.m, Micro::kRows, part / grid.cols, grid.rows);
        cols_ = Share(args_.n, Micro::kCols, part % grid.cols, grid.cols);
        if (rows_.begin >= rows_.end || cols_.begin >= cols_.end) return;
        if (args_.k == 0) return Clear();
        const typename Micro::Session session;
        const int64_t blocks = (args_.k + Micro::kMostDepth - 1) / Micro::kMostDepth;
        const int64_t deep = RoundUp((args_.k + blocks - 1) / blocks, Micro::kStep);
        for (begin_ = 0; begin_ < args_.k; begin_ += deep) {
            depth_ = std::min(deep, args_.k - begin_);
            const int64_t m = rows_.end - rows_.begin, n = cols_.end - cols_.begin;
            const int64_t a_held = Fit(m, Micro::kRows), b_held = Fit(n, Micro::kCols);
            const int64_t a_blocks = (m + a_held - 1) / a_held;
            const int64_t b_blocks = (n + b_held - 1) / b_held;
            const int64_t a_packed = m + n * a_blocks, b_packed = n + m * b_blocks;
            a_packed < b_packed ? HoldA(a_held) : HoldB(b_held);
        }
    }

  private:
    void Clear() const {
        for (int64_t i = rows_.begin; i < rows_.end && !args_.accumulate; ++i) {
            std::fill(args_.c + i * args_.c_stride + cols_.begin,
                      args_.c + i * args_.c_stride + cols_.end, 0.0f);
        }
    }

    // How many of `count` lanes are held at a time: even blocks.
    int64_t Fit(int64_t count, int64_t width) const {
        const int64_t most = HeldBytes<Micro>() / PanelBytes<Micro>(width, depth_) * width;
        const int64_t blocks = (count + most - 1) / most;
        return RoundUp((count + blocks - 1) / blocks, width);
    }

    void HoldA(int64_t block) const {
        const int64_t panel = PanelBytes<Micro>(Micro::kRows, depth_);
        for (int64_t i = rows_.begin; i < rows_.end; i += block) {
            const int64_t i_end = std::min(i + block, rows_.end);
            PackAPanels<Micro>(a_.From(i, begin_), i_end - i, depth_, held_);
            for (int64_t j = cols_.begin; j < cols_.end; j += Micro::kCols) {
                Micro::PackB(b_.From(j, begin_), std::min(Micro::kCols, cols_.end - j), depth_,
                             passing_);
                ForTileDepths([&](int64_t begin, int64_t depth) {
                    const std::byte* at = held_ + PanelBytes<Micro>(Micro::kRows, begin);
                    const std::byte* b = passing_ + PanelBytes<Micro>(Micro::kCols, begin);
                    for (int64_t row = i; row < i_end; row += Micro::kRows, at += panel) {
                        Multiply(at, b, begin, depth, row, j);
                    }
                });
            }
        }
    }

    void HoldB(int64_t block) const {
        const int64_t panel = PanelBytes<Micro>(Micro::kCols, depth_);
        for (int64_t j = cols_.begin; j < cols_.end; j += block) {
            const int64_t j_end = std::min(j + block, cols_.end);
            PackBPanels<Micro>(b_.From(j, begin_), j_end - j, depth_, held_);
            for (int64_t i = rows_.begin; i < rows_.end; i += Micro::kRows) {
                Micro::PackA(a_.From(i, begin_), std::min(Micro::kRows, rows_.end - i), depth_,
                             passing_);
                ForTileDepths([&](int64_t begin, int64_t depth) {
                    const std::byte* a = passing_ + PanelBytes<Micro>(Micro::kRows, begin);
                    const std::byte* at = held_ + PanelBytes<Micro>(Micro::kCols, begin);
                    for (int64_t col = j; col < j_end; col += Micro::kCols, at += panel) {
                        Multiply(a, at, begin, depth, i, col);
                    }
                });
            }
        }
    }

    // Calls on(begin, depth) for even parts of a panel's depth.
    template <typename On>
    void ForTileDepths(On on) const {
        const int64_t count = (depth_ + Micro::kTileDepth - 1) / Micro::kTileDepth;
        const int64_t deep = RoundUp((depth_ + count - 1) / count, Micro::kStep);
        for (int64_t d = 0; d < depth_; d += deep) on(d, std::min(deep, depth_ - d));
    }

    void Multiply(const std::byte* a, const std::byte* b, int64_t begin, int64_t depth, int64_t row,
                  int64_t col) const {
        TileOf<Micro>(a, b, depth, args_.c + row * args_.c_stride + col, args_.c_stride,
                      rows_.end - row, cols_.end - col,
                      args_.accumulate || begin_ > 0 || begin > 0);
    }

    const GemmArgs& args_;
    const Operand<TA> a_;  // lanes are rows
    const Operand<TB> b_;  // lanes are columns
    std::byte *held_, *passing_;
    Range rows_{}, cols_{};
    int64_t begin_ = 0, depth_ = 0;  // the block of k
};

template <typename Micro>
void BlockedGemm(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts) {
    const auto with_a = [&](auto a) {
        const auto with_b = [&](auto b) {
            Blocked<Micro, std::remove_cvref_t<decltype(*a.data)>,
                    std::remove_cvref_t<decltype(*b.data)>>(args, a, b, scratch)
                .Run(part, parts);
        };
        if (args.b_bf16 != nullptr) {
            with_b(Operand<uint16_t>{args.b_bf16, args.b_col, args.b_row});
        } else {
            with_b(Operand<float>{args.b, args.b_col, args.b_row});
        }
    };
    if (args.a_bf16 != nullptr) {
        with_a(Operand<uint16_t>{args.a_bf16, args.a_row, args.a_col});
    } else {
        with_a(Operand<float>{args.a, args.a_row, args.a_col});
    }
}

}  // namespace weft::kernels::dense
