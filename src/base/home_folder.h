// The user's home folder, which holds caches, settings and history.
#pragma once

#include <string>

namespace weft {

// Returns $HOME. If HOME is not set, as in systemd services, returns the home folder of the user's
// passwd entry. "": the user has no passwd entry.
std::string HomeFolder();

// Returns $XDG_CACHE_HOME/weft, or ~/.cache/weft if XDG_CACHE_HOME is not an absolute path. The
// folder need not exist. "": neither folder is known.
std::string CacheFolder();

}  // namespace weft
