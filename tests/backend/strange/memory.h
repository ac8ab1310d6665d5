// Memory of the strange device (device.cc): like backend/cpu/memory.h, but an allocation belongs to
// the owner that is set at the time, and the owner decides when the host may access the memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace weft::backend::strange {

class HiddenMemory {
  public:
    // While it lives, allocations of this thread belong to this memory.
    class Collects {
      public:
        explicit Collects(HiddenMemory& memory);
        ~Collects();
    };
    // While one lives, the memory is accessible; otherwise reading a byte of it ends the process.
    class Opened {
      public:
        explicit Opened(HiddenMemory& memory);
        ~Opened();

      private:
        HiddenMemory& memory_;
    };
    void Add(std::span<std::byte> range) { ranges_.push_back(range); }
    // From now on, threads of the device use the memory at any time, so it stays accessible.
    void KeepOpen() { ++opened_; }

  private:
    void Protect(int protection) const;

    std::vector<std::span<std::byte>> ranges_;
    std::mutex mutex_;
    int opened_ = 0;
};

}  // namespace weft::backend::strange
