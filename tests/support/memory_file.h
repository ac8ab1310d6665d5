// A file in memory, for fuzz targets and tests of code that opens files by name.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace weft::support {

// Each input replaces the file's content.
class MemoryFile {
  public:
    MemoryFile() : fd_(::memfd_create("input", MFD_CLOEXEC)) {
        if (fd_ < 0) std::abort();
        path_ = "/proc/self/fd/" + std::to_string(fd_);
    }
    const std::string& Write(const uint8_t* data, size_t size) {
        if (::ftruncate(fd_, 0) != 0 ||
            ::pwrite(fd_, data, size, 0) != static_cast<ssize_t>(size)) {
            std::abort();
        }
        return path_;
    }
    const std::string& Write(std::string_view text) {
        return Write(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    }

  private:
    int fd_;
    std::string path_;
};

}  // namespace weft::support
