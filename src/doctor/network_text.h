// Link kinds from the output of `ip addr`, for snapshots without the kernel's files. Accepts any
// bytes; no errors.
#pragma once

#include <string_view>

namespace weft::doctor {

// Whether the text has "link/infiniband" below the interface's line.
bool SaysInfiniband(std::string_view ip, std::string_view interface);

}  // namespace weft::doctor
