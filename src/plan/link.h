// The link between two hosts as their network cards report it: a kind and a port speed. The wires
// of machines/wires.json give its bandwidth and latency.
#pragma once

#include "base/result.h"
#include "plan/machine.h"

namespace weft::plan {

enum class LinkKind { kTcp, kRoce, kInfiniBand, kThunderbolt };

// The known wire of this kind and speed. For a speed between two known wires, the slower wire's
// bandwidth in proportion to `gigabits` (> 0). TCP never exceeds the fastest known TCP wire,
// because one stream's copies limit it. A faster port of a kind never gets a slower wire, and RDMA
// never gets less bandwidth than TCP over the same port.
Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits);

}  // namespace weft::plan
