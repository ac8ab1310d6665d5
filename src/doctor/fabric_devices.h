// Which of a host's interfaces ranks would talk over.
#pragma once

#include <vector>

#include "doctor/network.h"

namespace weft::doctor {

// The interfaces of RDMA ports, InfiniBand and Thunderbolt, else the fastest cards; those that are
// up and have an address. None where that was not read.
std::vector<NetDevice> FabricDevices(HostView& view);

}  // namespace weft::doctor
