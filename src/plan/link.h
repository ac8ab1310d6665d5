// What joins two hosts, as their cards tell of it: a kind and the speed of a port. The wires of
// machines/wires.json say what that carries.
#pragma once

#include "base/result.h"
#include "plan/machine.h"

namespace weft::plan {

enum class LinkKind { kTcp, kRoce, kInfiniBand, kThunderbolt };

// The well-known wire of that kind and speed; between two of them the slower one's bandwidth in
// proportion to `gigabits` (> 0). TCP gets no further than its fastest wire: that is what one
// stream's copies leave. A faster port of a kind never has the slower wire, and RDMA never less
// bandwidth than TCP over the same port.
Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits);

}  // namespace weft::plan
