// Memory of the strange device (device.cc): backend/cpu/memory.h's, but that what is allocated
// while an owner is named belongs to it, and the owner says when the host may touch it.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace weft::backend::strange {

class HiddenMemory {
  public:
    // While it lives, what this thread allocates is this memory's.
    class Collects {
      public:
        explicit Collects(HiddenMemory& memory);
        ~Collects();
    };
    // While one lives, the memory can be touched; else reading a byte of it ends the process.
    class Opened {
      public:
        explicit Opened(HiddenMemory& memory);
        ~Opened();

      private:
        HiddenMemory& memory_;
    };
    void Add(std::span<std::byte> range) { ranges_.push_back(range); }

  private:
    void Protect(int protection) const;

    std::vector<std::span<std::byte>> ranges_;
    std::mutex mutex_;
    int opened_ = 0;
};

}  // namespace weft::backend::strange
