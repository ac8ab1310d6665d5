// Streams over a link that loses, repeats, reorders or forges messages: a received message matches
// its announcement, or an error names the peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "coll/stream.h"

namespace weft::coll {
namespace {

constexpr size_t kSimStreamWindow = 16384;
const net::OpTag kTag{"all_reduce", 3, 4};

// A rank's put, held back until the test lets it, or other data, arrive.
struct Put {
    size_t offset;
    std::vector<std::byte> bytes;
    int flag;
    uint64_t value;
};

class HeldLink final : public net::Link {
  public:
    explicit HeldLink(int peer) : peer_{peer, "b", "held"} {}
    const net::PeerName& peer() const override { return peer_; }
    size_t window_bytes() const override { return kSimStreamWindow; }
    std::span<std::byte> window() override { return window_; }
    uint64_t flag(int index) const override { return flags_[static_cast<size_t>(index)]; }
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag&, const Deadline&) override {
        puts.push_back({offset, {head.begin(), head.end()}, flag, value});
        puts.back().bytes.insert(puts.back().bytes.end(), data.begin(), data.end());
        return {};
    }
    Status Wait(int flag, uint64_t value, const net::OpTag& tag, const Deadline&) override {
        if (flags_[static_cast<size_t>(flag)] >= value) return {};
        return MakeError(ErrorCode::kTimeout, "{}: {}", peer_.Text(), tag.Text());
    }
    void Arrive(const coll::Put& put) {
        std::copy(put.bytes.begin(), put.bytes.end(),
                  window_.begin() + static_cast<std::ptrdiff_t>(put.offset));
        uint64_t& flag = flags_[static_cast<size_t>(put.flag)];
        flag = std::max(flag, put.value);
    }

    std::vector<coll::Put> puts;

  private:
    net::PeerName peer_;
    std::vector<std::byte> window_ = std::vector<std::byte>(kSimStreamWindow);
    std::array<uint64_t, net::kFlags> flags_{};
};

// Rank 0 sends, rank 1 receives, or as the test has it.
class StreamTest : public ::testing::Test {
  protected:
    explicit StreamTest(bool checksum = false) : checksum_(checksum) {}
    Status Post(uint8_t fill) {
        const std::vector<std::byte> payload(100, static_cast<std::byte>(fill));
        return sender_.Post(7, 0, payload, kTag, Deadline::In(1));
    }
    Status Await(Stream& stream) {
        return stream.Await(7, 100, payload_, arrival_, kTag, Deadline::In(1));
    }
    Status Await() { return Await(receiver_); }
    Status Release() { return receiver_.Release(kTag, Deadline::In(1)); }
    // Message n (from 1) arrives at rank 1.
    void Arrive(size_t n) { there_.Arrive(here_.puts.at(n - 1)); }
    static void ExpectCorrupt(const Status& status, const char* words) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(ErrorCode::kCorrupt, status.error().code);
        EXPECT_EQ(0u, status.error().message.find("rank 0 (host b, held)"));
        EXPECT_NE(std::string::npos, status.error().message.find(words)) << status.error().message;
        EXPECT_NE(std::string::npos, status.error().message.find(kTag.Text()));
    }

    bool checksum_;
    HeldLink here_{1};
    HeldLink there_{0};
    Stream sender_{here_, 9, checksum_, 0, kSimStreamWindow, 0, ReleaseReport::kByFlag};
    Stream receiver_{there_, 9, checksum_, 0, kSimStreamWindow, 0, ReleaseReport::kByFlag};
    const std::byte* payload_ = nullptr;
    int64_t arrival_ = 0;
};

TEST_F(StreamTest, MessagesInOrderAreRead) {
    for (uint8_t n = 1; n <= 4; n++) ASSERT_TRUE(Post(n).ok());
    for (size_t n = 1; n <= 4; n++) {
        Arrive(n);
        ASSERT_TRUE(Await().ok());
        EXPECT_EQ(static_cast<std::byte>(n), payload_[99]);
        ASSERT_TRUE(Release().ok());
    }
}

TEST_F(StreamTest, ALaterMessageIsNotTakenForTheOneThatIsMissing) {
    for (uint8_t n = 1; n <= 3; n++) ASSERT_TRUE(Post(n).ok());
    Arrive(1);
    ASSERT_TRUE(Await().ok());
    ASSERT_TRUE(Release().ok());
    Arrive(3);  // raises the flag beyond message 2
    ExpectCorrupt(Await(), "message 0 of epoch 0 arrived in place of message 2 of epoch 9");
}

TEST_F(StreamTest, AnOldMessageInAUsedSlotIsFound) {
    for (uint8_t n = 1; n <= 4; n++) ASSERT_TRUE(Post(n).ok());
    for (size_t n = 1; n <= 4; n++) {
        Arrive(n);
        ASSERT_TRUE(Await().ok());
        ASSERT_TRUE(Release().ok());
    }
    for (const coll::Put& put : there_.puts) here_.Arrive(put);
    ASSERT_TRUE(Post(5).ok());
    coll::Put forged = here_.puts[4];
    forged.bytes = here_.puts[0].bytes;
    there_.Arrive(forged);
    ExpectCorrupt(Await(), "message 1 of epoch 9 arrived in place of message 5 of epoch 9");
}

TEST_F(StreamTest, ASlotThatChangesWhileItIsReadIsFound) {
    for (uint8_t n = 1; n <= 2; n++) ASSERT_TRUE(Post(n).ok());
    Arrive(1);
    ASSERT_TRUE(Await().ok());
    coll::Put late = here_.puts[0];
    late.bytes = here_.puts[1].bytes;
    there_.Arrive(late);
    ExpectCorrupt(Release(), "message 2 of epoch 9 arrived in place of message 1 of epoch 9");
}

TEST_F(StreamTest, AMessageOfAnotherEpochIsFound) {
    Stream old(here_, 8, false, 0, kSimStreamWindow, 0, ReleaseReport::kByFlag);
    const std::vector<std::byte> payload(100);
    ASSERT_TRUE(old.Post(7, 0, payload, kTag, Deadline::In(1)).ok());
    Arrive(1);
    ExpectCorrupt(Await(), "message 1 of epoch 8 arrived in place of message 1 of epoch 9");
}

TEST_F(StreamTest, MoreCreditThanMessagesIsFound) {
    for (uint8_t n = 1; n <= 4; n++) ASSERT_TRUE(Post(n).ok());
    here_.Arrive({0, {}, 1, 5});
    const Status fifth = Post(5);
    ASSERT_FALSE(fifth.ok());
    EXPECT_EQ(ErrorCode::kCorrupt, fifth.error().code);
    EXPECT_EQ(0u, fifth.error().message.find("rank 1 (host b, held): released 5 messages"));
}

class StreamChecksumTest : public StreamTest {
  protected:
    StreamChecksumTest() : StreamTest(true) {}
};

TEST_F(StreamChecksumTest, AnyChangedBitIsFound) {
    for (uint8_t n = 1; n <= 2; n++) ASSERT_TRUE(Post(n).ok());
    Arrive(1);
    ASSERT_TRUE(Await().ok());
    ASSERT_TRUE(Release().ok());
    const size_t bytes = here_.puts[1].bytes.size();
    ASSERT_EQ(sizeof(MessageHead) + 100, bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        coll::Put changed = here_.puts[1];
        changed.bytes[bit / 8] ^= std::byte{1} << (bit % 8);
        there_.Arrive(changed);
        const Status got = Await();
        ASSERT_FALSE(got.ok()) << "bit " << bit;
        EXPECT_EQ(ErrorCode::kCorrupt, got.error().code);
    }
    Arrive(2);
    EXPECT_TRUE(Await().ok());
}

}  // namespace
}  // namespace weft::coll
