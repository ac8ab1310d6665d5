// Incremental hash of a file's content, of one of the two kinds that the Hub uses as content names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace weft::hub {

class Digest {
  public:
    // sha256: SHA-256 of the bytes. Otherwise git's blob hash for `size` bytes (SHA-1 with a
    // header).
    Digest(bool sha256, uint64_t size);
    ~Digest();
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest&) = delete;
    void Add(std::span<const std::byte> bytes);
    // Returns hexadecimal digits; call once.
    std::string Finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace weft::hub
