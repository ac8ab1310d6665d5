// Asks the kernel to read parts of a file ahead, because a disk is several times as fast with many
// queued requests as with one request at a time. If the kernel ignores the request, reads only take
// longer.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace weft::train {

class ReadAhead {
  public:
    explicit ReadAhead(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ReadAhead(ReadAhead&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    ReadAhead& operator=(ReadAhead&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~ReadAhead() {
        if (fd_ >= 0) ::close(fd_);
    }

    // Thread: any.
    void Fetch(uint64_t offset, uint64_t bytes) const {
        if (fd_ < 0 || bytes == 0) return;
        ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_WILLNEED);
    }

  private:
    int fd_;
};

}  // namespace weft::train
