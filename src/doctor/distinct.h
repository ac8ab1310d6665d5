// Makes host names distinct, for example if two machines are called "localhost".
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// Renames hosts with equal names to "NAME (ORIGIN)". origins: the file or address of each host. If
// the origin is missing or not distinct either, the names are "NAME (2)", "NAME (3)". taken: names
// that are in use elsewhere.
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins = {},
                       std::set<std::string> taken = {});

}  // namespace weft::doctor
