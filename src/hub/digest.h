// A hash that is fed piece by piece: the two by which the Hub names contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::hub {

class Digest {
  public:
    // sha256: of the bytes alone. Otherwise git's name of a blob of `size` bytes (SHA-1 with its
    // header).
    Digest(bool sha256, uint64_t size);
    ~Digest();
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest&) = delete;
    void Add(std::span<const std::byte> bytes);
    // Hexadecimal; once.
    std::string Finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace weft::hub
