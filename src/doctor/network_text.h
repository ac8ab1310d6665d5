// What `ip addr` prints of a link's kind, for snapshots in which no file of the kernel tells it.
// Any bytes are taken; no errors.
#pragma once

#include <string_view>

namespace weft::doctor {

// Whether the text has "link/infiniband" below the line of the interface.
bool SaysInfiniband(std::string_view ip, std::string_view interface);

}  // namespace weft::doctor
