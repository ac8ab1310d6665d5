#include "base/home_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace weft {

std::string HomeFolder() {
    const char* home = std::getenv("HOME");
    if (home != nullptr && *home != '\0') return home;
    passwd entry{};
    passwd* found = nullptr;
    std::vector<char> room(size_t{64} << 10);
    const bool known = ::getpwuid_r(::geteuid(), &entry, room.data(), room.size(), &found) == 0 &&
                       found != nullptr;
    return known && entry.pw_dir != nullptr ? std::string(entry.pw_dir) : std::string();
}

std::string CacheFolder() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/weft";
    const std::string home = HomeFolder();
    return home.starts_with('/') ? home + "/.cache/weft" : "";
}

}  // namespace weft
