// Which all-reduce suits a size: from measurements, the same answer on every rank of a group.
#pragma once

#include <cstddef>

#include "coll/comm.h"

namespace weft::coll {

// over_tcp: some pair of the group is joined by tcp (then every rank has such a link).
Algorithm ChooseAllReduce(int ranks, size_t bytes, bool over_tcp);

}  // namespace weft::coll
