// The loops of a dense product around a micro-kernel, which computes one tile of C.
//
// Micro is the class of vector/micro.h or of amx/micro.h:
//   kRows, kCols   rows and columns of a tile of C
//   kStep          a panel's depth is rounded up to a multiple of this
//   kMostDepth     maximum depth of a block of packed panels, a multiple of kStep; but a k of up to
//                  kWholeDepth is one block
//   kTileDepth     the depth that is multiplied at a time, so that it stays in L1
//   kSlackBytes    bytes after a panel that packing may overwrite
//   kHoldsB        always holds panels of B in L2, even if more panels must be packed: successive
//                  tiles are in the same rows of C
//   Session        an object that lives as long as tiles are computed
//   PackA, PackB   (Operand, lanes, depth, to): panels of kRows or kCols lanes
//   Tile           (a, b, depth, c, c_stride, Write): a whole tile of C, of any element type
//   Finish         makes streamed stores visible in memory
#pragma once

#include <cstring>
#include <span>

#include "base/check.h"
#include "kernels/dense/cache.h"
#include "kernels/vector/math.h"
#include "kernels/vector/pack.h"

namespace weft::kernels::WEFT_SET {

// How a tile is stored: C = A . B, C += A . B, or C = A . B with streaming stores that bypass the
// caches. kStream is for a C that is larger than the caches; the rows of C must begin at cache
// lines of 64 bytes.
enum class Write { kSet, kAdd, kStream };

constexpr int64_t RoundUp(int64_t count, int64_t grain) {
    return (count + grain - 1) / grain * grain;
}

// Size in bytes of a panel of `lanes` lanes: 4 bytes per unit, which is a float or a pair of
// bfloat16.
template <typename Micro>
constexpr int64_t PanelBytes(int64_t lanes, int64_t depth) {
    return lanes * RoundUp(depth, Micro::kStep) * 4 / Micro::kUnitDepth;
}

template <typename Micro>
void PackAPanels(const AnyOperand& from, int64_t lanes, int64_t depth, std::byte* to) {
    const auto pack = [&](auto type) { Micro::PackA(from.Of<decltype(type)>(), lanes, depth, to); };
    WithTypes(pack, from.type);
}
template <typename Micro>
void PackBPanels(const AnyOperand& from, int64_t lanes, int64_t depth, std::byte* to) {
    const auto pack = [&](auto type) { Micro::PackB(from.Of<decltype(type)>(), lanes, depth, to); };
    WithTypes(pack, from.type);
}

// Converts rows of floats to rows of any type, or adds them.
template <typename T>
void PutRows(const float* from, int64_t from_stride, int64_t rows, int64_t cols, T* to,
             int64_t to_stride, bool add) {
    for (int64_t i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
        const float* x = from;
        T* y = to;
        ForVectors(
            0, cols,
            [=](int64_t j) {
                const auto value = Simd::Load(x + j);
                Simd::Store(y + j, add ? Simd::Add(Simd::Load(y + j), value) : value);
            },
            [=](int64_t j, int64_t left) {
                const auto value = Simd::LoadFirst(x + j, left);
                const auto sum = Simd::Add(Simd::LoadFirst(y + j, left), value);
                Simd::StoreFirst(y + j, add ? sum : value, left);
            });
    }
}

// Computes the first `rows` rows and `cols` columns of a tile, in floats.
template <typename Micro>
inline void TileOf(const std::byte* a, const std::byte* b, int64_t depth, float* c,
                   int64_t c_stride, int64_t rows, int64_t cols, Write write) {
    if (rows >= Micro::kRows && cols >= Micro::kCols) {
        return Micro::Tile(a, b, depth, c, c_stride, write);
    }
    rows = std::min(rows, Micro::kRows);
    cols = std::min(cols, Micro::kCols);
    alignas(64) float tile[Micro::kRows * Micro::kCols];
    if (write == Write::kAdd) {
        std::fill_n(tile, Micro::kRows * Micro::kCols, 0.0f);
        for (int64_t i = 0; i < rows; ++i) {
            std::copy_n(c + i * c_stride, cols, tile + i * Micro::kCols);
        }
    }
    Micro::Tile(a, b, depth, tile, Micro::kCols, write == Write::kAdd ? Write::kAdd : Write::kSet);
    for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(tile + i * Micro::kCols, cols, c + i * c_stride);
    }
}

// As the function above, for a C of a narrow type. The depth must be the whole k.
template <typename Micro, typename T>
inline void TileOf(const std::byte* a, const std::byte* b, int64_t depth, T* c, int64_t c_stride,
                   int64_t rows, int64_t cols, Write write) {
    if (rows >= Micro::kRows && cols >= Micro::kCols) {
        return Micro::Tile(a, b, depth, c, c_stride, write);
    }
    alignas(64) float tile[Micro::kRows * Micro::kCols];
    Micro::Tile(a, b, depth, tile, Micro::kCols, Write::kSet);
    PutRows(tile, Micro::kCols, std::min(rows, Micro::kRows), std::min(cols, Micro::kCols), c,
            c_stride, write == Write::kAdd);
}

// The grid of parts, rows x cols, for which the least data must be packed.
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
        // Most time is arithmetic. Packing an element costs as much as about sixteen products.
        const int64_t cost = height * width + 16 * (height + width);
        if (cost < least) {
            least = cost;
            best = {rows, cols};
        }
    }
    return best;
}

// Bytes of panels that stay in L2 while they are multiplied by other panels, one after another.
template <typename Micro>
int64_t HeldBytes() {
    const int64_t panel =
        PanelBytes<Micro>(std::max(Micro::kRows, Micro::kCols), Micro::kWholeDepth);
    return std::max(panel, dense::L2Bytes() / 8 * 5);
}

// Whether the sums of C are kept in scratch memory until k is complete, so that they are rounded
// only once.
template <typename Micro>
bool IsStaged(const GemmArgs& args) {
    return args.c.type != Element::kF32 && args.k > Micro::kTileDepth;
}
// Bytes of scratch memory for these sums.
inline int64_t StageBytes() {
    return 2 * dense::L2Bytes();
}

// Bytes of the panels that are packed at a time to be multiplied by the held ones.
template <typename Micro>
constexpr int64_t PassingBytes() {
    const int64_t lanes =
        std::max(RoundUp(kPackedTogether, Micro::kRows), RoundUp(kPackedTogether, Micro::kCols));
    return RoundUp(PanelBytes<Micro>(lanes, Micro::kWholeDepth) + Micro::kSlackBytes, 64);
}
// From this size on, C is stored with streaming stores, because it would evict everything else from
// the caches.
constexpr int64_t kStreamedBytes = 16 << 20;

template <typename Micro>
int64_t BlockedScratchBytes(const GemmArgs& args) {
    return 64 + RoundUp(HeldBytes<Micro>() + Micro::kSlackBytes, 64) + PassingBytes<Micro>() +
           (IsStaged<Micro>(args) ? StageBytes() : 0);
}

// One part of a product. For each block of k: packs as many panels of one operand as L2 holds. Then
// it packs the panels of the other operand one by one and multiplies each of them by all panels
// that are held in L2.
template <typename Micro>
class Blocked {
  public:
    Blocked(const GemmArgs& args, std::span<std::byte> scratch)
        : args_(args),
          a_{{args.a.data, args.a.row, args.a.col, args.a.type}, Micro::kRows, {}},
          b_{{args.b.data, args.b.col, args.b.row, args.b.type}, Micro::kCols, {}} {
        WEFT_CHECK(static_cast<int64_t>(scratch.size()) >= BlockedScratchBytes<Micro>(args));
        const uintptr_t address = reinterpret_cast<uintptr_t>(scratch.data());
        held_panels_ = scratch.data() + (64 - address % 64) % 64;
        passing_panels_ = held_panels_ + RoundUp(HeldBytes<Micro>() + Micro::kSlackBytes, 64);
        stage_ = reinterpret_cast<float*>(passing_panels_ + PassingBytes<Micro>());
    }

    void Run(int part, int parts) {
        const Grid grid = GridOf<Micro>(args_, parts);
        a_.range = Share(args_.m, Micro::kRows, part / grid.cols, grid.rows);
        b_.range = Share(args_.n, Micro::kCols, part % grid.cols, grid.cols);
        if (a_.count() == 0 || b_.count() == 0) return;
        if (args_.k == 0) return Clear();
        const typename Micro::Session session;
        const bool whole = args_.k <= Micro::kWholeDepth;
        const int64_t blocks = whole ? 1 : (args_.k + Micro::kMostDepth - 1) / Micro::kMostDepth;
        deep_ = RoundUp((args_.k + blocks - 1) / blocks, Micro::kStep);
        const int64_t a_held = Fit(a_), b_held = Fit(b_);
        const int64_t a_blocks = (a_.count() + a_held - 1) / a_held;
        const int64_t b_blocks = (b_.count() + b_held - 1) / b_held;
        const int64_t a_packed = a_.count() + b_.count() * a_blocks;
        const int64_t b_packed = b_.count() + a_.count() * b_blocks;
        const bool holds_a = !Micro::kHoldsB && a_packed < b_packed;
        holds_a ? Hold(a_, b_, a_held) : Hold(b_, a_, b_held);
        if (Streams()) Micro::Finish();
    }

  private:
    // Rows of A or columns of B.
    struct Side {
        AnyOperand from;
        int64_t width;  // width of a panel
        Range range;    // range of this part
        int64_t count() const { return range.end - range.begin; }
    };
    struct Depths {
        int64_t begin, count;
    };

    void Clear() const {
        if (args_.accumulate) return;
        const Matrix c = args_.c.From(a_.range.begin, b_.range.begin);
        for (int64_t i = 0; i < a_.count(); ++i) {  // zeros of all types are zero bytes
            const auto bytes = static_cast<size_t>(b_.count() * ElementBytes(c.type));
            std::memset(c.From(i, 0).data, 0, bytes);
        }
    }

    // (A part's columns begin at whole tiles.)
    bool Streams() const {
        const int64_t row_bytes = args_.c.stride * ElementBytes(args_.c.type);
        return !args_.accumulate && args_.k <= Micro::kTileDepth && row_bytes % 64 == 0 &&
               reinterpret_cast<uintptr_t>(args_.c.data) % 64 == 0 &&
               args_.m * row_bytes >= kStreamedBytes;
    }

    // Number of lanes to hold in L2 at a time, chosen so that blocks have similar sizes.
    int64_t Fit(const Side& side) const {
        const int64_t most = HeldBytes<Micro>() / PanelBytes<Micro>(side.width, deep_) * side.width;
        const int64_t blocks = (side.count() + most - 1) / most;
        return RoundUp((side.count() + blocks - 1) / blocks, side.width);
    }

    void Hold(const Side& held, const Side& passing, int64_t block) {
        int64_t chunk = passing.count();
        if (IsStaged<Micro>(args_)) {
            const int64_t most = StageBytes() / 4 / block / passing.width * passing.width;
            WEFT_CHECK(most > 0);
            const int64_t chunks = (chunk + most - 1) / most;
            chunk = RoundUp((chunk + chunks - 1) / chunks, passing.width);
        }
        const bool a_held = &held == &a_;
        for (int64_t i = held.range.begin; i < held.range.end; i += block) {
            const Range lanes{i, std::min(i + block, held.range.end)};
            for (int64_t j = passing.range.begin; j < passing.range.end; j += chunk) {
                const Range others{j, std::min(j + chunk, passing.range.end)};
                Region(a_held ? lanes : others, a_held ? others : lanes, a_held);
            }
        }
    }

    // Computes a region of C over all of k.
    void Region(Range rows, Range cols, bool a_held) {
        const bool staged = IsStaged<Micro>(args_);
        const int64_t width = cols.end - cols.begin;
        const Matrix c = args_.c.From(rows.begin, cols.begin);
        target_ = staged ? Matrix{stage_, width} : c;
        Write write = Streams() ? Write::kStream : Write::kSet;
        if (args_.accumulate && !staged) write = Write::kAdd;
        for (Depths k{0, 0}; k.begin < args_.k; k.begin += deep_) {
            k.count = std::min(deep_, args_.k - k.begin);
            a_held ? Multiply(a_, rows, b_, cols, k, write)
                   : Multiply(b_, cols, a_, rows, k, write);
            write = Write::kAdd;
        }
        if (!staged) return;
        const auto put = [&](auto type) {
            PutRows(stage_, width, rows.end - rows.begin, width, c.Row<decltype(type)>(0), c.stride,
                    args_.accumulate);
        };
        WithTypes(put, c.type);
    }

    // Multiplies one block of k. Lanes `lanes` of `held` stay in L2 and are multiplied by the lanes
    // `others` of `passing`.
    void Multiply(const Side& held, Range lanes, const Side& passing, Range others, Depths k,
                  Write write) const {
        Pack(held, lanes, k, held_panels_);
        const int64_t panel = PanelBytes<Micro>(passing.width, k.count);
        const int64_t wide = RoundUp(kPackedTogether, passing.width);
        const int64_t most = passing.from.lane == 1 ? wide : passing.width;
        const int64_t count = others.end - others.begin;
        for (int64_t first = 0; first < count; first += most) {
            const int64_t end = std::min(first + most, count);
            Pack(passing, {others.begin + first, others.begin + end}, k, passing_panels_);
            const std::byte* by = passing_panels_;
            for (int64_t j = first; j < end; j += passing.width, by += panel) {
                Pass(held, lanes.end - lanes.begin, by, j, count - j, k, write);
            }
        }
    }

    // Multiplies one panel of the passing operand by all held panels. The panel begins at lane `j`
    // of the target; `left` lanes remain from there on.
    void Pass(const Side& held, int64_t count, const std::byte* passing, int64_t j, int64_t left,
              Depths k, Write write) const {
        const bool a_held = &held == &a_;
        const int64_t panel = PanelBytes<Micro>(held.width, k.count);
        const int64_t other = a_held ? Micro::kCols : Micro::kRows;
        ForTileDepths(k.count, [&](int64_t begin, int64_t depth) {
            const std::byte* at = held_panels_ + PanelBytes<Micro>(held.width, begin);
            const std::byte* by = passing + PanelBytes<Micro>(other, begin);
            const Write how = begin > 0 ? Write::kAdd : write;
            for (int64_t i = 0; i < count; i += held.width, at += panel) {
                if (a_held) {
                    Tile(at, by, depth, i, j, count - i, left, how);
                } else {
                    Tile(by, at, depth, j, i, left, count - i, how);
                }
            }
        });
    }

    void Pack(const Side& side, Range lanes, Depths k, std::byte* to) const {
        const AnyOperand from = side.from.From(lanes.begin, k.begin);
        const int64_t count = lanes.end - lanes.begin;
        &side == &a_ ? PackAPanels<Micro>(from, count, k.count, to)
                     : PackBPanels<Micro>(from, count, k.count, to);
    }

    // Divides the depth of a panel into parts of similar size and calls on(begin, depth) for each.
    template <typename On>
    static void ForTileDepths(int64_t all, On on) {
        const int64_t count = (all + Micro::kTileDepth - 1) / Micro::kTileDepth;
        const int64_t deep = RoundUp((all + count - 1) / count, Micro::kStep);
        for (int64_t d = 0; d < all; d += deep) on(d, std::min(deep, all - d));
    }

    void Tile(const std::byte* a, const std::byte* b, int64_t depth, int64_t row, int64_t col,
              int64_t rows, int64_t cols, Write write) const {
        const auto tile = [&](auto type) {
            TileOf<Micro>(a, b, depth, target_.Row<decltype(type)>(row) + col, target_.stride, rows,
                          cols, write);
        };
        WithTypes(tile, target_.type);
    }

    const GemmArgs& args_;
    Side a_, b_;
    std::byte *held_panels_, *passing_panels_;
    float* stage_;
    Matrix target_;     // target of tiles: C, or sums in scratch memory
    int64_t deep_ = 0;  // depth of a block of k
};

template <typename Micro>
struct BlockedGemm {
    static int64_t ScratchBytes(const GemmArgs& args) { return BlockedScratchBytes<Micro>(args); }
    static void Run(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts) {
        Blocked<Micro>(args, scratch).Run(part, parts);
    }
};

// The GEMM functions of a kernel table. Floats and Halves are instances of BlockedGemm.
template <typename Floats, typename Halves>
struct GemmByCompute {
    static int64_t ScratchBytes(const GemmArgs& args) {
        return args.compute == Compute::kF32 ? Floats::ScratchBytes(args)
                                             : Halves::ScratchBytes(args);
    }
    static void Run(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts) {
        args.compute == Compute::kF32 ? Floats::Run(args, scratch, part, parts)
                                      : Halves::Run(args, scratch, part, parts);
    }
    static void Set(Kernels& table) {
        static_cast<dense::GemmKernels&>(table) = {ScratchBytes, Run};
    }
};

}  // namespace weft::kernels::WEFT_SET
