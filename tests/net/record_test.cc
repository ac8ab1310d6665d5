// Sealed records: an encrypted link carries what its sender put, or ends. Attackers here can read
// and change every byte between the ranks, but do not know the secrets.
#include "net/record.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "net/local.h"
#include "net/offer.h"
#include "net/socket.h"
#include "net/tcp_link.h"
#include "support/ranks.h"

namespace weft::net {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kRecordWindow = size_t{256} << 10;
constexpr uint64_t kRecordEpoch = 5;
const OpTag kRecordTag{"all_reduce", 3, 4};

LinkSecret SecretOf(uint8_t seed) {
    LinkSecret secret;
    secret.fill(seed);
    return secret;
}

LinkKeys KeysOf(int rank, uint64_t epoch = kRecordEpoch) {
    return KeysOfLink(SecretOf(rank == 0 ? 1 : 2), SecretOf(rank == 0 ? 2 : 1), rank, 1 - rank,
                      epoch);
}

// A sender's frames as records, and a reader of them.
struct Stream {
    Bytes Seal(const FrameHeader& header, const Bytes& payload) {
        const std::span<const std::byte> first = std::as_bytes(std::span(&header, 1));
        AesGcm::Bytes parts[] = {first, payload};
        Bytes wire;
        while (!parts[0].empty() || !parts[1].empty()) {
            const std::span<const std::byte> sealed = sealer.Seal(parts);
            wire.insert(wire.end(), sealed.begin(), sealed.end());
        }
        return wire;
    }
    Status Read(std::span<const std::byte> bytes, size_t most = SIZE_MAX) {
        while (!bytes.empty()) {
            const iovec target = records.Target();
            const size_t take = std::min({bytes.size(), target.iov_len, most});
            std::memcpy(target.iov_base, bytes.data(), take);
            WEFT_TRY(records.Consume(take));
            bytes = bytes.subspan(take);
        }
        return {};
    }
    RecordSealer sealer{KeysOf(0).send};
    Bytes window = Bytes(kRecordWindow);
    FrameReader frames{kRecordEpoch, window};
    RecordReader records{KeysOf(1).receive, frames};
};

FrameHeader HeaderOf(size_t offset, size_t length, uint64_t value) {
    return {.flag = 2, .epoch = kRecordEpoch, .offset = offset, .length = length, .value = value};
}

Bytes RecordPattern(size_t bytes, unsigned seed) {
    std::mt19937 dice(seed);
    Bytes data(bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>(dice());
    return data;
}

TEST(Record, EachDirectionEpochAndPairHasItsOwnKeys) {
    EXPECT_EQ(KeysOf(0).send, KeysOf(1).receive);
    EXPECT_EQ(KeysOf(1).send, KeysOf(0).receive);
    EXPECT_NE(KeysOf(0).send, KeysOf(0).receive);
    EXPECT_NE(KeysOf(0).send, KeysOf(0, kRecordEpoch + 1).send);
    const LinkSecret a = SecretOf(1), b = SecretOf(2);
    EXPECT_NE(KeysOfLink(a, b, 0, 1, 1).send, KeysOfLink(a, b, 0, 2, 1).send);
    EXPECT_NE(KeysOfLink(a, b, 0, 1, 1).send, KeysOfLink(a, a, 0, 1, 1).send);
}

TEST(Record, FramesArriveHoweverTheStreamIsCut) {
    for (const size_t most : {size_t{1}, size_t{7}, size_t{4096}, SIZE_MAX}) {
        Stream stream;
        Bytes wire;
        const Bytes a = RecordPattern(40, 1), b = RecordPattern(kRecordWindow - 64, 2);
        for (const Bytes& part :
             {stream.Seal(HeaderOf(0, a.size(), 1), a), stream.Seal(HeaderOf(64, b.size(), 2), b),
              stream.Seal(HeaderOf(0, 0, 3), {})}) {
            wire.insert(wire.end(), part.begin(), part.end());
        }
        ASSERT_TRUE(stream.Read(wire, most).ok());
        EXPECT_EQ(stream.frames.flag(2), 3u);
        EXPECT_EQ(std::memcmp(stream.window.data(), a.data(), a.size()), 0);
        EXPECT_EQ(std::memcmp(stream.window.data() + 64, b.data(), b.size()), 0);
    }
}

TEST(Record, NothingOfTheDataIsReadableOnTheWire) {
    Stream stream;
    const std::string text = "the prompt's token ids, 1 2 3 4 5 6 7 8";
    const auto* at = reinterpret_cast<const std::byte*>(text.data());
    const Bytes wire = stream.Seal(HeaderOf(0, text.size(), 1), Bytes(at, at + text.size()));
    for (size_t i = 0; i + 4 <= text.size(); i += 4) {
        EXPECT_TRUE(std::search(wire.begin(), wire.end(), at + i, at + i + 4) == wire.end());
    }
    // The same frame again has other bytes.
    EXPECT_NE(wire, stream.Seal(HeaderOf(0, text.size(), 1), Bytes(at, at + text.size())));
}

TEST(Record, AChangedByteAnywhereEndsTheLinkBeforeItsFlag) {
    const Bytes data = RecordPattern(50, 3);
    Stream sender;
    const Bytes wire = sender.Seal(HeaderOf(0, data.size(), 1), data);
    for (size_t i = 0; i < wire.size(); i++) {
        Stream stream;
        Bytes changed = wire;
        changed[i] ^= std::byte{0x10};
        // A length that grew waits for bytes that never come.
        const Status read = stream.Read(changed);
        EXPECT_EQ(stream.frames.flag(2), 0u) << "byte " << i;
        EXPECT_TRUE(!read.ok() || i < sizeof(uint32_t)) << "byte " << i;
        EXPECT_FALSE(stream.Read(Bytes(kMostRecord)).ok()) << "byte " << i;
        EXPECT_EQ(stream.frames.flag(2), 0u) << "byte " << i;
    }
}

TEST(Record, ARepeatedDroppedOrSwappedRecordEndsTheLink) {
    for (const char* what : {"repeated", "dropped", "swapped", "reflected", "of another epoch"}) {
        Stream stream;
        const Bytes first = stream.Seal(HeaderOf(0, 4, 1), Bytes(4));
        const Bytes second = stream.Seal(HeaderOf(4, 4, 2), Bytes(4));
        Status read;
        if (std::string(what) == "repeated") {
            ASSERT_TRUE(stream.Read(first).ok());
            read = stream.Read(first);
        } else if (std::string(what) == "dropped") {
            read = stream.Read(second);
        } else if (std::string(what) == "swapped") {
            read = stream.Read(second);
            if (read.ok()) read = stream.Read(first);
        } else if (std::string(what) == "reflected") {
            FrameReader frames(kRecordEpoch, stream.window);
            RecordReader own(KeysOf(0).receive, frames);  // the sender's own reader
            const iovec target = own.Target();
            std::memcpy(target.iov_base, first.data(), first.size());
            read = own.Consume(first.size());
        } else {
            RecordReader later(KeysOf(1, kRecordEpoch + 1).receive, stream.frames);
            const iovec target = later.Target();
            std::memcpy(target.iov_base, first.data(), first.size());
            read = later.Consume(first.size());
        }
        ASSERT_FALSE(read.ok()) << what;
        EXPECT_NE(read.error().message.find("changed, repeated or dropped"), std::string::npos)
            << read.error().message;
    }
}

TEST(Record, HostileLengthsAreRefused) {
    for (const uint32_t length : {0u, uint32_t{kMostRecord} + 1, 0xffffffffu}) {
        Stream stream;
        Bytes wire(sizeof length);
        std::memcpy(wire.data(), &length, sizeof length);
        const Status read = stream.Read(wire);
        ASSERT_FALSE(read.ok()) << length;
        EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    }
}

// A peer with the keys that breaks the rules of records.
TEST(Record, ARecordLargerThanTheRestOfItsFrameIsRefused) {
    Stream stream;
    const Bytes unfinished = stream.Seal(HeaderOf(0, 10, 1), {});
    ASSERT_TRUE(stream.Read(unfinished).ok());
    const Bytes more(11);
    AesGcm::Bytes parts[] = {more};
    const Status read = stream.Read(stream.sealer.Seal(parts));
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.error().message.find("a record of 11 bytes where at most 10 fit"),
              std::string::npos)
        << read.error().message;
    EXPECT_EQ(stream.frames.flag(2), 0u);
}

// A second record costs a small message as much as its encryption.
TEST(Record, AMessageOf16KiBIsOneRecord) {
    Stream stream;
    const size_t heads = sizeof(FrameHeader) + 64;
    const Bytes wire = stream.Seal(HeaderOf(0, 64 + (16 << 10), 1), Bytes(64 + (16 << 10)));
    EXPECT_EQ(wire.size(), heads + (16 << 10) + kRecordExtra);
}

// A proxy between two ranks that changes one byte of the `at`-th kilobyte.
TEST(Record, AProxyThatChangesAByteEndsTheJobWithItsReason) {
    for (const bool changes : {false, true}) {
        int left[2], right[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
        Progress progress[2];
        auto a = MakeTcpLink(progress[0], {1, "b", "tcp"}, Fd(left[0]), kRecordEpoch, kRecordWindow,
                             KeysOf(0))
                     .value();
        auto b = MakeTcpLink(progress[1], {0, "a", "tcp"}, Fd(right[0]), kRecordEpoch,
                             kRecordWindow, KeysOf(1))
                     .value();
        progress[0].Add(a.get(), Progress::Data::kSocket);
        progress[1].Add(b.get(), Progress::Data::kSocket);
        std::thread proxy([&] {
            Bytes buffer(5000);
            size_t passed = 0;
            for (ssize_t got; (got = ::read(left[1], buffer.data(), buffer.size())) > 0;) {
                if (changes && passed <= 100'000 && passed + static_cast<size_t>(got) > 100'000) {
                    buffer[100'000 - passed] ^= std::byte{1};
                }
                passed += static_cast<size_t>(got);
                if (::send(right[1], buffer.data(), static_cast<size_t>(got), MSG_NOSIGNAL) !=
                    got) {
                    return;
                }
            }
        });
        const Bytes data = RecordPattern(kRecordWindow - 64, 7);
        const Deadline deadline = Deadline::In(10'000);
        std::thread sender([&] {
            // (It fails if the reader has ended the link.)
            [[maybe_unused]] const Status sent = a->Put(64, {}, data, 2, 1, kRecordTag, deadline);
        });
        const Status waited = b->Wait(2, 1, kRecordTag, deadline);
        if (changes) b.reset();
        ::shutdown(left[1], SHUT_WR);
        if (changes) ::shutdown(left[1], SHUT_RDWR);
        sender.join();
        a.reset();
        proxy.join();
        for (const int fd : {left[1], right[1]}) ::close(fd);
        EXPECT_EQ(waited.ok(), !changes);
        if (waited.ok()) {
            EXPECT_EQ(std::memcmp(b->window().data() + 64, data.data(), data.size()), 0);
        } else {
            EXPECT_EQ(waited.error().code, ErrorCode::kPeerLost);
            EXPECT_NE(waited.error().message.find("changed, repeated or dropped on the way"),
                      std::string::npos)
                << waited.error().message;
        }
    }
}

// Links within one kernel stay bare; between hosts they are encrypted unless the user says no.
TEST(Record, OffersSayWhichLinksAreEncrypted) {
    Offer mine, theirs;
    mine.boot_id = theirs.boot_id = "a";
    mine.network = theirs.network = "net:[1]";
    EXPECT_FALSE(IsEncrypted(mine, theirs));
    theirs.network = "net:[2]";
    EXPECT_TRUE(IsEncrypted(mine, theirs));
    theirs.network = mine.network;
    theirs.boot_id = "b";
    EXPECT_TRUE(IsEncrypted(mine, theirs));
    mine.boot_id = theirs.boot_id = "";
    EXPECT_TRUE(IsEncrypted(mine, theirs)) << "nothing known: encrypted";
    mine.encryption = theirs.encryption = Encryption::kNever;
    EXPECT_FALSE(IsEncrypted(mine, theirs));
}

}  // namespace
}  // namespace weft::net
