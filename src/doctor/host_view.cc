#include "doctor/host_view.h"

#include <algorithm>

#include "doctor/text.h"

namespace weft::doctor {

std::string CommandPath(std::string_view words) {
    std::string path(words);
    std::ranges::replace_if(
        path, [](char c) { return c == ' ' || c == '/'; }, '_');
    return "cmd/" + path;
}

std::string HostView::Text(const std::string& path) {
    const Reading reading = Read(path);
    return reading.found() ? std::string(Trim(reading.text)) : std::string();
}

bool HostView::Has(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return false;
    const std::vector<std::string> names = List(path.substr(0, slash));
    return std::ranges::binary_search(names, path.substr(slash + 1));
}

}  // namespace weft::doctor
