// The user's home folder, which holds caches, settings and history.
#pragma once

#include <string>

namespace weft {

// Returns $HOME. If it is not set, as in systemd services, returns the home folder in the user's
// passwd entry, or "" if there is none.
std::string HomeFolder();

}  // namespace weft
