// Selects the interfaces of a host that ranks would use.
#pragma once

#include <vector>

#include "doctor/network.h"

namespace weft::doctor {

// The interfaces of RDMA ports, InfiniBand and Thunderbolt; without them, the fastest cards. Only
// those that are up and have an address. Empty if addresses were not read.
std::vector<NetDevice> FabricDevices(HostView& view);

}  // namespace weft::doctor
