// The link between two hosts as their network cards report it: a kind and a port speed. Bandwidth
// and latency come from the wires in machines/wires.json.
#pragma once

#include "base/result.h"
#include "plan/machine.h"

namespace weft::plan {

enum class LinkKind { kTcp, kRoce, kInfiniBand, kThunderbolt };

// Returns the known wire of this kind and speed (`gigabits`, > 0). If the speed is between those of
// two known wires, the slower wire's bandwidth is scaled in proportion to the speed. TCP never
// exceeds the fastest known TCP wire, because the copies of one stream limit it. Of two ports of a
// kind, the faster one never gets less bandwidth. RDMA never gets less bandwidth than TCP over the
// same port.
Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits);

}  // namespace weft::plan
