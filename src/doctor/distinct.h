// Names of hosts that tell them apart: two machines called "localhost" stay two.
#pragma once

#include <memory>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// The second host of a name is called "NAME (2)" from here on, the third "NAME (3)".
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts);

}  // namespace weft::doctor
