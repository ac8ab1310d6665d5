// FrameReader: any cut of the stream gives the same window and flags; hostile frames are refused.
#include "net/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace weft::net {
namespace {

constexpr size_t kFrameWindow = size_t{128} << 10;
constexpr uint64_t kEpoch = 7;

void Append(std::vector<std::byte>& stream, const FrameHeader& header,
            std::span<const std::byte> payload = {}) {
    const auto bytes = std::as_bytes(std::span(&header, 1));
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
}

// Feeds the stream in pieces of at most what `cut` returns.
template <typename Cut>
Status Feed(FrameReader& reader, std::span<const std::byte> stream, Cut cut) {
    while (!stream.empty()) {
        std::array<iovec, FrameReader::kTargets> targets;
        const int count = reader.Targets(targets);
        size_t left = std::min<size_t>(std::max<size_t>(cut(), 1), stream.size());
        size_t taken = 0;
        for (int i = 0; i < count; i++) {
            const size_t part = std::min(left, targets[i].iov_len);
            std::memcpy(targets[i].iov_base, stream.data() + taken, part);
            taken += part;
            left -= part;
        }
        WEFT_TRY(reader.Consume(taken));
        stream = stream.subspan(taken);
    }
    return {};
}

TEST(Frame, AnyCutOfTheStreamGivesTheSameWindow) {
    std::mt19937 random(3);
    for (int round = 0; round < 60; round++) {
        std::vector<std::byte> stream;
        std::vector<std::byte> expected(kFrameWindow);
        std::array<uint64_t, kFlags> flags{};
        for (int frame = 0; frame < 12; frame++) {
            std::vector<std::byte> payload(random() % 3 == 0 ? random() % 60'000 : random() % 200);
            for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
            FrameHeader header{.flag = static_cast<uint32_t>(random() % kFlags),
                               .epoch = random() % 5 == 0 ? kEpoch - 1 : kEpoch,
                               .offset = random() % (kFrameWindow - payload.size()),
                               .length = payload.size()};
            header.value = flags[header.flag] + random() % 3;
            Append(stream, header, payload);
            if (header.epoch != kEpoch) continue;  // a late frame is ignored
            std::copy(payload.begin(), payload.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>(header.offset));
            flags[header.flag] = header.value;
        }
        std::vector<std::byte> window(kFrameWindow);
        FrameReader reader(kEpoch, window);
        const size_t most = size_t{1} << (random() % 18);
        ASSERT_TRUE(Feed(reader, stream, [&] { return random() % most; }).ok());
        EXPECT_TRUE(window == expected) << "round " << round;
        for (int i = 0; i < kFlags; i++) EXPECT_EQ(flags[static_cast<size_t>(i)], reader.flag(i));
    }
}

// Frames are for the expected part of the window, or for another: the bytes end where the headers
// say, except in a part of the window that a wrong guess may overwrite.
TEST(Frame, ExpectationsChangeNothingButTheWay) {
    constexpr size_t kGuessed = size_t{40} << 10;  // wrong guesses lie from here on
    std::mt19937 random(9);
    for (int round = 0; round < 200; round++) {
        std::vector<std::byte> window(kFrameWindow), expected(kFrameWindow);
        FrameReader reader(kEpoch, window);
        const size_t most = size_t{1} << (random() % 18);
        std::vector<std::byte> stream;
        uint64_t value = 0;
        for (int frame = 0; frame < 20; frame++) {
            std::vector<std::byte> payload(random() % 4 == 0 ? random() % 20'000 : random() % 100);
            for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
            const size_t offset = random() % (kGuessed - payload.size());
            const bool late = random() % 6 == 0;
            Append(stream,
                   {.flag = 1,
                    .epoch = late ? kEpoch - 1 : kEpoch,
                    .offset = offset,
                    .length = payload.size(),
                    .value = ++value},
                   payload);
            const bool next = stream.size() == sizeof(FrameHeader) + payload.size();
            const uint32_t guess = random() % 3;
            if (guess == 0 && next && !late) reader.Expect(offset, payload.size());
            if (guess == 1) reader.Expect(kGuessed + random() % 50'000, random() % 30'000);
            if (!late) {
                std::copy(payload.begin(), payload.end(),
                          expected.begin() + static_cast<std::ptrdiff_t>(offset));
            }
            // Now and then several frames come at once.
            if (random() % 3 == 0) continue;
            ASSERT_TRUE(Feed(reader, stream, [&] { return random() % most; }).ok());
            stream.clear();
            ASSERT_TRUE(std::equal(window.begin(), window.begin() + kGuessed, expected.begin()))
                << "round " << round << " frame " << frame;
        }
    }
}

TEST(Frame, AFlagRisesOnlyOnceThePayloadIsWhole) {
    std::vector<std::byte> stream;
    const std::vector<std::byte> payload(1000, std::byte{9});
    Append(stream, {.flag = 2, .epoch = kEpoch, .length = 1000, .value = 5}, payload);
    std::vector<std::byte> window(kFrameWindow);
    FrameReader reader(kEpoch, window);
    const auto all = [] { return kFrameWindow; };
    ASSERT_TRUE(Feed(reader, std::span(stream).first(stream.size() - 1), all).ok());
    EXPECT_EQ(0u, reader.flag(2));
    ASSERT_TRUE(Feed(reader, std::span(stream).last(1), all).ok());
    EXPECT_EQ(5u, reader.flag(2));
}

TEST(Frame, HostileHeadersAreRefused) {
    const FrameHeader good{.flag = 1, .epoch = kEpoch, .offset = 0, .length = 0, .value = 3};
    struct Bad {
        const char* why;
        FrameHeader header;
    };
    std::vector<Bad> cases;
    const auto add = [&](const char* why, auto change) {
        cases.push_back({why, good});
        change(cases.back().header);
    };
    add("begins with", [](FrameHeader& h) { h.magic++; });
    add("raises flag", [](FrameHeader& h) { h.flag = kFlags; });
    add("raises flag", [](FrameHeader& h) { h.flag = kGoodbyeFlag - 1; });
    add("does not fit", [](FrameHeader& h) { h.offset = kFrameWindow + 1; });
    add("does not fit", [](FrameHeader& h) { h.length = kFrameWindow + 1; });
    add("does not fit", [](FrameHeader& h) { h.offset = 64, h.length = kFrameWindow - 63; });
    add("does not fit", [](FrameHeader& h) { h.offset = 64, h.length = ~uint64_t{0} - 32; });
    add("does not fit", [](FrameHeader& h) { h.flag = kGoodbyeFlag, h.length = 8; });
    add("does not fit", [](FrameHeader& h) { h.length = kFrameWindow + 1, h.epoch = 0; });
    add("lowers flag", [](FrameHeader& h) { h.value = 1; });
    for (const Bad& bad : cases) {
        std::vector<std::byte> stream;
        FrameHeader before = good;
        before.value = 2;
        Append(stream, before);
        Append(stream, bad.header);
        std::vector<std::byte> window(kFrameWindow);
        FrameReader reader(kEpoch, window);
        const Status fed = Feed(reader, stream, [] { return kFrameWindow; });
        ASSERT_FALSE(fed.ok()) << bad.why;
        EXPECT_EQ(ErrorCode::kCorrupt, fed.error().code);
        EXPECT_NE(std::string::npos, fed.error().message.find(bad.why)) << fed.error().message;
    }
}

}  // namespace
}  // namespace weft::net
