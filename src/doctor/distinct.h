// Names of hosts that tell them apart: two machines called "localhost" stay two.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// The second host of a name is called "NAME (2)" from here on, the third "NAME (3)". Names of
// `taken` are others' already.
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       std::set<std::string> taken = {});

}  // namespace weft::doctor
