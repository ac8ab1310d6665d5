// The user's home folder, which holds caches, settings and history.
#pragma once

#include <string>

namespace weft {

// $HOME; if it is not set, as in systemd services, the home folder in the user's passwd entry. "":
// neither is known.
std::string HomeFolder();

}  // namespace weft
