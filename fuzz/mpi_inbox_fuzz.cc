// Fuzzes messages of an mpi link. The input has one message after another: a length byte, then that
// many words of eight bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/mpi/inbox.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::vector<std::byte> window(4096);
    weft::net::MpiInbox inbox(0, window);
    std::span<const std::byte> left(reinterpret_cast<const std::byte*>(data), size);
    while (!left.empty()) {
        const size_t length = std::min(left.size() - 1, static_cast<size_t>(left[0]) * 8);
        const auto taken = inbox.Take(left.subspan(1, length));
        left = left.subspan(1 + length);
        if (!taken.ok()) break;
        if (!taken->has_value()) continue;
        for (std::byte& byte : (*taken)->into) byte = std::byte{1};
        inbox.BulkArrived();
    }
    return 0;
}
