// Names of hosts that tell them apart: two machines called "localhost" stay two.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// Hosts of one name are called "NAME (ORIGIN)" from here on: the file, or the address, that each
// was had from; without one, or where these are the same, "NAME (2)", "NAME (3)". Names of `taken`
// are others' already.
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins = {},
                       std::set<std::string> taken = {});

}  // namespace weft::doctor
