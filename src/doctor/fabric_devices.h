// Selects the interfaces of a host that ranks would use.
#pragma once

#include <vector>

#include "doctor/network.h"

namespace weft::doctor {

// Returns the interfaces of RDMA ports, InfiniBand and Thunderbolt. If there are none, the fastest
// other network cards. Interfaces that are down or have no address are left out. So the list is
// empty if addresses could not be read.
std::vector<NetDevice> FabricDevices(HostView& view);

}  // namespace weft::doctor
