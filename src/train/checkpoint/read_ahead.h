// Requests that the kernel read parts of a file ahead, because a disk is several times as fast with
// many queued requests as with one request at a time. If the kernel ignores the request, reads only
// take longer.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace weft::train {

class ReadAhead {
  public:
    explicit ReadAhead(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

    // Thread: any.
    void Fetch(uint64_t offset, uint64_t bytes) const {
        if (!fd_.valid() || bytes == 0) return;
        ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_WILLNEED);
    }

  private:
    Fd fd_;
};

}  // namespace weft::train
