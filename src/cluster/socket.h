// Sockets of the control plane: owned descriptors, addresses, listening and dialling.
// All descriptors are non-blocking and closed on exec.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::cluster {

// Owns a file descriptor.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Fd() { Close(); }

    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }
    int Release() { return std::exchange(fd_, -1); }
    void Close();

  private:
    int fd_ = -1;
};

struct Address {
    std::string host;
    std::string port;
    std::string Text() const;  // "h2:7000", "[::1]:7000"
};

// "host:port" or "[v6]:port". Errors: kUsage.
Result<Address> ParseAddress(std::string_view text);
// Errors: kUsage (unknown host), kIo (address in use).
Result<Fd> ListenOn(const Address& address);
// name: for errors, "worker h2:7000". Tries again while the host refuses, until the deadline.
// Errors: kUsage (unknown host), kTimeout, kIo.
Result<Fd> Dial(const Address& address, const std::string& name, const Deadline& deadline);
// A connected pair between this process and a child of it. Errors: kIo.
Result<std::pair<Fd, Fd>> MakeSocketPair();

void SetNoDelay(int fd);
// At close nothing is kept for a peer that does not answer.
void SetResetOnClose(int fd);
int LocalPort(int fd);
// This end's numeric address, and the other end's with its port; "" where there is none.
std::string LocalHost(int fd);
std::string PeerText(int fd);

}  // namespace weft::cluster
