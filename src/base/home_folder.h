// Where a user's own files lie: the folder that caches, settings and notes are below.
#pragma once

#include <string>

namespace weft {

// $HOME; where that is not set, as for services of systemd, the folder of the user's entry in the
// system's list. "": neither says one.
std::string HomeFolder();

}  // namespace weft
