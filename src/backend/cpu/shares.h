// Sums over the ranks that see different data, of values in a rank's memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"
#include "tensor/dtype.h"

namespace weft::backend {

// all: parts[r] elements of each rank r, this rank's from `begin` on, kF32, kBF16 or kF16.
// share: as many elements as the own part; becomes, or where it `adds` grows by, the sum over ranks
// of the own part, each sum of narrow values rounded once. share may be the own part of `all`,
// which is lost otherwise. comm: null where there is one rank. Errors: those of links.
Status ReduceScatterInto(coll::Comm* comm, std::span<std::byte> all, DType dtype,
                         std::span<const int64_t> parts, int64_t begin, std::span<std::byte> share,
                         bool adds, const net::OpTag& tag);

}  // namespace weft::backend
