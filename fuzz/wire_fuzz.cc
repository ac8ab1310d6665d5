// Fuzzes the input of data connections: the frame stream, cut anywhere, and offers.
//
// Input: byte 0 picks the parser (even: frames, odd: an offer). Frames: byte 1 is the size of the
// reads, the rest is the stream; the window is 4 KiB, the epoch 5. Seeds: fuzz/corpus/wire.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "net/frame.h"
#include "net/offer.h"

namespace {

constexpr size_t kWindow = 4096;
constexpr uint64_t kEpoch = 5;

void ReadFrames(std::span<const std::byte> input, size_t read_bytes) {
    std::vector<std::byte> window(kWindow);
    weft::net::FrameReader reader(kEpoch, window);
    std::array<uint64_t, weft::net::kFlags> before{};
    while (!input.empty()) {
        // A guess at the next frame, out of the input itself: mostly wrong.
        reader.Expect(static_cast<size_t>(input[0]) * 17, static_cast<size_t>(input.back()) * 3);
        std::array<iovec, weft::net::FrameReader::kTargets> targets;
        const int count = reader.Targets(targets);
        size_t left = std::min(read_bytes, input.size());
        size_t taken = 0;
        for (int i = 0; i < count; i++) {
            const size_t part = std::min(left, targets[static_cast<size_t>(i)].iov_len);
            std::memcpy(targets[static_cast<size_t>(i)].iov_base, input.data() + taken, part);
            taken += part;
            left -= part;
        }
        if (!reader.Consume(taken).ok()) return;
        input = input.subspan(taken);
        for (int i = 0; i < weft::net::kFlags; i++) {
            WEFT_CHECK(reader.flag(i) >= before[static_cast<size_t>(i)]);
            before[static_cast<size_t>(i)] = reader.flag(i);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
    if (data[0] % 2 == 0) {
        ReadFrames(input.subspan(2), size_t{data[1]} + 1);
        return 0;
    }
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto offer = weft::net::DecodeOffer(text);
    if (offer.ok()) WEFT_CHECK(weft::net::EncodeOffer(*offer) == text);
    return 0;
}
