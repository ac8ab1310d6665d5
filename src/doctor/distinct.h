// Makes host names distinct: two machines called "localhost" get different names.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// Renames hosts of equal names to "NAME (ORIGIN)", where the origin is the file or address of the
// host. Without an origin, or with equal ones: "NAME (2)", "NAME (3)". Does not use names in
// `taken`.
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins = {},
                       std::set<std::string> taken = {});

}  // namespace weft::doctor
