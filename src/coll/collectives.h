// Collectives other than all_reduce: each rank sends directly to each other rank, one message at a
// time. all_gather and reduce_scatter also have a hierarchical form (hierarchical.cc), with the
// same bits. Contracts: coll/comm.h. Errors: the Team's.
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

// Divides a vector into consecutive parts, one for each place (a member's number in the team,
// coll/team.h).
class Parts {
  public:
    // CHECKs that there are `places` counts with the sum `total`.
    Parts(std::span<const size_t> counts, size_t places, size_t total);
    size_t longest() const { return *std::ranges::max_element(counts_); }
    // Number of values in a place's part after the first `done` ones, at most `most`.
    size_t Left(size_t place, size_t done, size_t most) const {
        return std::min(most, counts_[place] - std::min(done, counts_[place]));
    }
    // These values: the part of `all` that belongs to `place`, after its first `done` values, at
    // most `most` of them.
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
// team: all ranks. Each part is sent once to each other host, to a rank that distributes it there.
Status AllGatherHierarchical(const Team& team, std::span<std::byte> all, const Parts& parts);
Status AllToAll(const Team& team, std::span<const std::byte> out, const Parts& out_parts,
                std::span<std::byte> in, const Parts& in_parts);
Status Broadcast(const Team& team, std::span<std::byte> data, size_t root);
// The team's wire type must be kFull.
Status ReduceScatter(const Team& team, std::span<float> data, const Parts& parts);
// The team's wire type must be the type of `data`, and its value type float. sums: a reusable
// buffer.
Status ReduceScatter(const Team& team, std::span<const uint16_t> data, const Parts& parts,
                     std::vector<float>& sums, const Comm::TakeSums& take);
// The same sums in rank order, by a Chain (coll/hosts.h). team: all ranks; messages are posted with
// ReleaseReport::kByFlag (coll/stream.h). sums: a reusable buffer.
Status ReduceScatterHierarchical(const Team& team, std::span<float> data, const Parts& parts,
                                 std::vector<float>& sums);
Status ReduceScatterHierarchical(const Team& team, std::span<const uint16_t> data,
                                 const Parts& parts, std::vector<float>& sums,
                                 const Comm::TakeSums& take);
Status Barrier(const Team& team);

}  // namespace weft::coll
