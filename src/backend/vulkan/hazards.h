// Where commands must wait for those before them: a dispatch that touches bytes which another since
// the last barrier wrote, or that writes bytes which one read. Found from ranges of addresses
// alone, so that reuse of the arena and of scratch is covered by the same rule.
#pragma once

#include <span>
#include <vector>

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

class Hazards {
  public:
    // Takes up what the next command touches. True: a barrier must come before it.
    bool Touch(std::span<const Region> reads, std::span<const Region> writes);
    // There was a barrier.
    void Clear() {
        read_.clear();
        written_.clear();
    }

  private:
    std::vector<Region> read_, written_;
};

}  // namespace weft::backend::vulkan
