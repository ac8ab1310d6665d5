// Fd: an owned file descriptor. The destructor and Reset close it; a moved-from Fd owns none.
#pragma once

#include <unistd.h>

#include <utility>

namespace weft {

class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this == &other) return *this;
        Reset();
        fd_ = std::exchange(other.fd_, -1);
        return *this;
    }
    ~Fd() { Reset(); }
    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }
    void Reset() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }

  private:
    int fd_ = -1;
};

}  // namespace weft
