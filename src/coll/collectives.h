// The collectives other than all_reduce: everybody straight to everybody, a message's worth at a
// time; all_gather and reduce_scatter also from host to host (hierarchical.cc), with the same bits.
// Contracts: coll/comm.h. Errors: the Team's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/team.h"

namespace weft::coll {

// A vector in parts, one after another, one for each place.
class Parts {
  public:
    // It is a bug unless there are `places` counts, `total` together.
    Parts(std::span<const size_t> counts, size_t places, size_t total);
    size_t longest() const { return *std::ranges::max_element(counts_); }
    // How much of a place's part is left from `done` on, `most` at most.
    size_t Left(size_t place, size_t done, size_t most) const {
        return std::min(most, counts_[place] - std::min(done, counts_[place]));
    }
    // What is left of a place's part of `all` from `done` on, `most` at most.
    template <typename T>
    std::span<T> Piece(std::span<T> all, size_t place, size_t done, size_t most) const {
        const size_t skip = std::min(done, counts_[place]);
        return all.subspan(BeginOf(place) + skip, std::min(most, counts_[place] - skip));
    }

  private:
    size_t BeginOf(size_t place) const;

    std::span<const size_t> counts_;
};

Status AllGather(const Team& team, std::span<std::byte> all, const Parts& parts);
// team: everybody. A part crosses to each other host once, to a rank that passes it on there.
Status AllGatherHierarchical(const Team& team, std::span<std::byte> all, const Parts& parts);
Status AllToAll(const Team& team, std::span<const std::byte> out, const Parts& out_parts,
                std::span<std::byte> in, const Parts& in_parts);
Status Broadcast(const Team& team, std::span<std::byte> data, size_t root);
// The team's wire: kFull.
Status ReduceScatter(const Team& team, std::span<float> data, const Parts& parts);
// The team's wire is the type of `data`, its values are floats. sums: a buffer to be kept.
Status ReduceScatter(const Team& team, std::span<const uint16_t> data, const Parts& parts,
                     std::vector<float>& sums, const Comm::TakeSums& take);
// The same sums in the order of ranks, by a Chain (coll/hosts.h). team: everybody, whose group
// posts Told::kByFlag. sums: a buffer to be kept.
Status ReduceScatterHierarchical(const Team& team, std::span<float> data, const Parts& parts,
                                 std::vector<float>& sums);
Status ReduceScatterHierarchical(const Team& team, std::span<const uint16_t> data,
                                 const Parts& parts, std::vector<float>& sums,
                                 const Comm::TakeSums& take);
Status Barrier(const Team& team);

}  // namespace weft::coll
