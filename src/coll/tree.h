// all_reduce and broadcast of a group whose members do not all have links with each other: messages
// go along a tree, from each member to its parent and back. So a member needs few links (at most
// one for each power of two below the number of members), however large the group is.
//
// The parent of member r > 0 is r without its lowest bit: 1 -> 0, 2 -> 0, 3 -> 2, 6 -> 4, ... If
// the ranks of a host are consecutive, most edges of the tree are within hosts. Errors: the Team's.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "coll/team.h"

namespace weft::coll {

// Whether two members need a link; all such pairs in a group of `members`.
bool AreTreeNeighbors(size_t a, size_t b);
std::vector<std::pair<int, int>> TreePairs(int members);

// team: all members, with the full wire type. Each member adds its children's sums to its own
// addend, nearest child first. data, sum: as in coll/all_reduce/algorithms.h.
Status AllReduceTree(const Team& team, Values data, Values sum);
Status BroadcastTree(const Team& team, std::span<std::byte> data, size_t root);

}  // namespace weft::coll
