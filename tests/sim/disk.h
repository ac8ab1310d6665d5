// The disk of a simulated cluster: a real folder that all hosts share. It may be slow, full or
// broken for simulated threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sim {

struct Disk {
    std::string folder;      // "": there is no disk
    bool full = false;       // no more bytes
    int broken_percent = 0;  // calls that write fail with EIO
    int64_t slow_ns = 0;     // longest time of a call that writes
    // The names to which files were renamed, in order.
    std::vector<std::string> renamed{};

    void Mend() {
        full = false;
        broken_percent = 0;
        slow_ns = 0;
    }
    bool Holds(std::string_view path) const { return !folder.empty() && path.starts_with(folder); }
};

}  // namespace weft::sim
