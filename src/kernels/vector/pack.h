// Packs operands into panels.
//
// A panel holds some lanes (rows of A or columns of B) over a range of k, in units of 32 bits: a
// float, or two consecutive bfloat16. A panel's layout is [unit][lane], or for AMX tiles
// [lane][unit] in squares of 16. Positions beyond the operand's edge are zeros.
//
// Units is from micro.h or ../avx512/units.h: Vec holds kLanes units of kDepth elements each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// The element of lane l at depth d is data[l * lane + d * depth].
template <typename T>
struct Operand {
    const T* data;
    int64_t lane, depth;
    Operand From(int64_t lanes, int64_t depths) const {
        return {data + lanes * lane + depths * depth, lane, depth};
    }
};

// As Operand, for elements of any type.
struct AnyOperand {
    const void* data = nullptr;
    int64_t lane = 0, depth = 0;
    Element type = Element::kF32;
    AnyOperand From(int64_t lanes, int64_t depths) const {
        const auto* bytes = static_cast<const std::byte*>(data);
        return {bytes + (lanes * lane + depths * depth) * ElementBytes(type), lane, depth, type};
    }
    template <typename T>
    Operand<T> Of() const {
        return {static_cast<const T*>(data), lane, depth};
    }
};

// Number of contiguous lanes that are packed at a time: a few cache lines.
inline constexpr int64_t kPackedTogether = 64;

// Prefetches the lines of `count` elements. Any address is allowed.
template <typename T>
inline void FetchLines(const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) {
        __builtin_prefetch(from + i, 0, 2);
    }
}

// Reads squares of kLanes lanes x kLanes units of one operand.
template <typename Units, typename T>
class Squares {
  public:
    using Vec = typename Units::Vec;
    static constexpr int64_t kLanes = Units::kLanes;
    static constexpr int64_t kDeep = Units::kLanes * Units::kDepth;  // elements

    // next: the number of lanes from a lane that is read to one that is packed next; that lane is
    // prefetched.
    Squares(const Operand<T>& from, int64_t lanes, int64_t depth, int64_t next)
        : from_(from), lanes_(lanes), depth_(depth), next_(next * from.lane) {}

    // Reads a square into `out`: out[u] has unit `unit` + u of the lanes from `lane` on.
    void ByUnit(int64_t lane, int64_t unit, Vec* out) const {
        if (from_.lane == 1) return LoadUnits(lane, unit, out);
        LoadLanes(lane, unit, out);
        Units::Transpose(out);
    }
    // Reads a square into `out`: out[l] has the units from `unit` on of lane `lane` + l.
    void ByLane(int64_t lane, int64_t unit, Vec* out) const {
        if (from_.lane != 1) return LoadLanes(lane, unit, out);
        LoadUnits(lane, unit, out);
        Units::Transpose(out);
    }

  private:
    void LoadUnits(int64_t lane, int64_t unit, Vec* out) const {
        const int64_t lanes = std::clamp<int64_t>(lanes_ - lane, 0, kLanes);
        const T* at = from_.data + lane + unit * Units::kDepth * from_.depth;
        const int64_t left = depth_ - unit * Units::kDepth;
        for (int64_t u = 0; u < kLanes; ++u, at += Units::kDepth * from_.depth) {
            out[u] = Units::LoadAcross(at, from_.depth, left - u * Units::kDepth, lanes);
        }
    }

    void LoadLanes(int64_t lane, int64_t unit, Vec* out) const {
        const int64_t left = std::clamp<int64_t>(depth_ - unit * Units::kDepth, 0, kDeep);
        const T* at = from_.data + lane * from_.lane + unit * Units::kDepth * from_.depth;
        for (int64_t l = 0; l < kLanes; ++l, at += from_.lane) {
            if (lane + l >= lanes_) {
                out[l] = Units::Zero();
            } else if (from_.depth == 1) {
                out[l] = Units::LoadAlong(at, left);
                FetchLines(at + next_, kDeep);
            } else {
                T gathered[kDeep] = {};
                for (int64_t d = 0; d < left; ++d) gathered[d] = at[d * from_.depth];
                out[l] = Units::LoadAlong(gathered, kDeep);
            }
        }
    }

    const Operand<T> from_;
    const int64_t lanes_, depth_, next_;
};

// Packs a panel [unit][kWidth], padded to a multiple of kGrain units. If kWidth is not a multiple
// of the lanes of a vector, up to one vector after the panel is overwritten, so panels must be
// packed in ascending order.
template <typename Units, int64_t kWidth, int64_t kGrain, typename T>
void PackPanel(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
    constexpr int64_t kLanes = Units::kLanes;
    const Squares<Units, T> squares(from, lanes, depth, kWidth);
    constexpr int64_t kStep = kGrain * Units::kDepth;
    const int64_t units = (depth + kStep - 1) / kStep * kGrain;
    for (int64_t unit = 0; unit < units; unit += kLanes) {
        const int64_t count = std::min(kLanes, units - unit);
        for (int64_t lane = 0; lane < kWidth; lane += kLanes) {
            typename Units::Vec square[kLanes];
            squares.ByUnit(lane, unit, square);
            std::byte* at = to + (unit * kWidth + lane) * 4;
            for (int64_t u = 0; u < count; ++u) Units::Store(at + u * kWidth * 4, square[u]);
        }
    }
}

// Packs as many panels as `lanes` fill. If lanes are contiguous, several panels are packed
// together, so that each cache line is used completely when it is read. If they were packed one by
// one, rows at large, regular distances could evict each other from the cache.
template <typename Units, int64_t kWidth, int64_t kGrain, typename T>
void PackPanels(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
    constexpr int64_t kStep = kGrain * Units::kDepth;
    const int64_t units = (depth + kStep - 1) / kStep * kGrain;
    const int64_t bytes = units * kWidth * 4;
    if (from.lane != 1) {
        for (int64_t i = 0; i < lanes; i += kWidth, to += bytes) {
            PackPanel<Units, kWidth, kGrain>(from.From(i, 0), std::min(kWidth, lanes - i), depth,
                                             to);
        }
        return;
    }
    constexpr int64_t kTogether = (kPackedTogether + kWidth - 1) / kWidth * kWidth;
    for (int64_t first = 0; first < lanes; first += kTogether) {
        const int64_t end = std::min(first + kTogether, lanes);
        for (int64_t unit = 0; unit < units; ++unit) {
            const int64_t left = depth - unit * Units::kDepth;
            const T* row = from.data + unit * Units::kDepth * from.depth;
            for (int64_t d = 0; d < Units::kDepth; ++d) {
                FetchLines(row + end + d * from.depth, kTogether);
            }
            for (int64_t i = first; i < end; i += kWidth) {
                std::byte* at = to + i / kWidth * bytes + unit * kWidth * 4;
                for (int64_t lane = 0; lane < kWidth; lane += Units::kLanes) {
                    // Lanes after the panel are overwritten by the next unit.
                    const auto vec =
                        Units::LoadAcross(row + i + lane, from.depth, left,
                                          std::clamp<int64_t>(lanes - i - lane, 0, Units::kLanes));
                    if (unit + 1 < units) {
                        Units::Store(at + lane * 4, vec);
                    } else {
                        Units::StoreFirst(at + lane * 4, vec, kWidth - lane);
                    }
                }
            }
        }
    }
}

// Packs a panel [units / kLanes][kWidth][kLanes], padded to whole squares.
template <typename Units, int64_t kWidth, typename T>
void PackTiles(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
    constexpr int64_t kLanes = Units::kLanes;
    const Squares<Units, T> squares(from, lanes, depth, kWidth);
    const int64_t units = (depth + Units::kDepth - 1) / Units::kDepth;
    for (int64_t unit = 0; unit < units; unit += kLanes) {
        for (int64_t lane = 0; lane < kWidth; lane += kLanes) {
            typename Units::Vec square[kLanes];
            squares.ByLane(lane, unit, square);
            std::byte* at = to + (unit * kWidth + lane * kLanes) * 4;
            for (int64_t l = 0; l < kLanes; ++l) Units::Store(at + l * kLanes * 4, square[l]);
        }
    }
}

}  // namespace weft::kernels::WEFT_SET
