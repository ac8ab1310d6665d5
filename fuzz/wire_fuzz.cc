// Fuzzes the input of data connections: the frame stream, cut anywhere, sealed records, and offers.
//
// Input: byte 0 picks the parser (0x80 to 0xff: records; else even: frames, odd: an offer). Frames:
// byte 1 is the size of the reads, the rest is the stream; the window is 4 KiB, the epoch 5.
// Records: byte 1 is the size of the plaintexts, which a peer with the keys seals, and of the
// reads; if byte 2 is odd, one bit of the sealed stream is changed. Seeds: fuzz/corpus/wire.
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
#include "net/record.h"

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

// Records give the frames that their plaintexts give, or an error; nothing after a changed bit.
void ReadRecords(std::span<const std::byte> input, size_t part_bytes, bool changes) {
    weft::net::LinkSecret secret{};
    const weft::net::LinkKeys keys = weft::net::KeysOfLink(secret, secret, 0, 1, kEpoch);
    weft::net::RecordSealer sealer(keys.send);
    std::vector<std::byte> wire;
    for (std::span<const std::byte> left = input; !left.empty();) {
        weft::AesGcm::Bytes part = left.first(std::min(part_bytes, left.size()));
        left = left.subspan(part.size());
        const auto records = sealer.Seal({&part, 1});
        WEFT_CHECK(part.empty());
        wire.insert(wire.end(), records.begin(), records.end());
    }
    const size_t changed = changes && !wire.empty() ? wire.size() / 2 : wire.size();
    if (changed < wire.size()) wire[changed] ^= std::byte{1};
    std::vector<std::byte> window(kWindow), plain_window(kWindow);
    weft::net::FrameReader frames(kEpoch, window), plain(kEpoch, plain_window);
    weft::net::RecordReader records(weft::net::KeysOfLink(secret, secret, 1, 0, kEpoch).receive,
                                    frames);
    bool ok = true;
    for (std::span<const std::byte> left = wire; ok && !left.empty();) {
        const iovec target = records.Target();
        const size_t take = std::min({part_bytes, target.iov_len, left.size()});
        std::memcpy(target.iov_base, left.data(), take);
        ok = records.Consume(take).ok();
        left = left.subspan(take);
    }
    bool plain_ok = true;
    while (plain_ok && !input.empty()) {
        std::array<iovec, weft::net::FrameReader::kTargets> targets;
        plain.Targets(targets);
        const size_t take = std::min(targets[0].iov_len, input.size());
        std::memcpy(targets[0].iov_base, input.data(), take);
        plain_ok = plain.Consume(take).ok();
        input = input.subspan(take);
    }
    if (!changes && ok) WEFT_CHECK(plain_ok && window == plain_window);
    for (int i = 0; i < weft::net::kFlags; i++) WEFT_CHECK(frames.flag(i) <= plain.flag(i));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
    if (data[0] >= 0x80) {
        if (size > 3) ReadRecords(input.subspan(3), size_t{data[1]} + 1, data[2] % 2 == 1);
        return 0;
    }
    if (data[0] % 2 == 0) {
        ReadFrames(input.subspan(2), size_t{data[1]} + 1);
        return 0;
    }
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto offer = weft::net::DecodeOffer(text);
    if (offer.ok()) WEFT_CHECK(weft::net::EncodeOffer(*offer) == text);
    return 0;
}
