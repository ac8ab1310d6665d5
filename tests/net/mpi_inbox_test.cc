// Messages of an mpi link: the bytes in the window, raised flags, and refused messages.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "net/mpi/inbox.h"

namespace weft::net {
namespace {

constexpr uint64_t kToken = 77;
constexpr size_t kMpiInboxWindow = 4096;

std::vector<std::byte> Message(const MpiHeader& header, size_t bytes) {
    std::vector<std::byte> message(sizeof header + bytes, std::byte{9});
    std::memcpy(message.data(), &header, sizeof header);
    return message;
}

MpiHeader Header(uint64_t offset, uint32_t bytes, uint64_t value) {
    return {
        .frame = {.flag = 3, .epoch = kToken, .offset = offset, .length = bytes, .value = value},
        .bytes_here = bytes};
}

class MpiInboxTest : public testing::Test {
  protected:
    std::vector<std::byte> window_ = std::vector<std::byte>(kMpiInboxWindow);
    MpiInbox inbox_{kToken, window_};
    void Refused(const MpiHeader& header, size_t bytes) {
        const auto taken = inbox_.Take(Message(header, bytes));
        ASSERT_FALSE(taken.ok());
        EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
        EXPECT_EQ(inbox_.flag(3), 0u);
    }
};

TEST_F(MpiInboxTest, ASmallPutIsOneMessage) {
    const auto taken = inbox_.Take(Message(Header(100, 50, 1), 50));
    ASSERT_TRUE(taken.ok());
    EXPECT_FALSE(taken->has_value());
    EXPECT_EQ(inbox_.flag(3), 1u);
    EXPECT_EQ(window_[99], std::byte{0});
    EXPECT_EQ(window_[100], std::byte{9});
    EXPECT_EQ(window_[149], std::byte{9});
    EXPECT_EQ(window_[150], std::byte{0});
}

TEST_F(MpiInboxTest, ALargePutRaisesItsFlagOnceItsBulkIsThere) {
    MpiHeader header = Header(64, 64, 5);
    header.frame.length = 1000;
    header.bulk_tag = 12;
    const auto taken = inbox_.Take(Message(header, 64));
    ASSERT_TRUE(taken.ok() && taken->has_value());
    EXPECT_EQ((*taken)->tag, 12u);
    EXPECT_EQ((*taken)->into.data(), window_.data() + 128);
    EXPECT_EQ((*taken)->into.size(), 936u);
    EXPECT_EQ(inbox_.flag(3), 0u);
    inbox_.BulkArrived();
    EXPECT_EQ(inbox_.flag(3), 5u);
}

TEST_F(MpiInboxTest, AMessageForAnEarlierLinkIsDropped) {
    MpiHeader header = Header(0, 8, 1);
    header.frame.epoch = kToken + 1;
    header.frame.length = 99'999;
    header.bulk_tag = 4;
    const auto taken = inbox_.Take(Message(header, 8));
    ASSERT_TRUE(taken.ok());
    EXPECT_FALSE(taken->has_value());
    EXPECT_EQ(inbox_.dropped(), 1u);
    EXPECT_EQ(inbox_.flag(3), 0u);
    EXPECT_EQ(window_[0], std::byte{0});
}

TEST_F(MpiInboxTest, NonsenseIsRefused) {
    Refused(Header(kMpiInboxWindow - 7, 8, 1), 8);  // over the end
    Refused(Header(UINT64_MAX - 3, 8, 1), 8);       // an offset that overflows
    Refused(Header(0, 9, 1), 8);                    // fewer bytes than the header says
    Refused(Header(0, 7, 1), 8);                    // more
    MpiHeader header = Header(0, 8, 1);
    header.frame.flag = kFlags;
    Refused(header, 8);
    header.frame.flag = kGoodbyeFlag;
    Refused(header, 8);
    header = Header(0, 8, 1);
    header.bulk_tag = 3;  // no bytes remain for this tag
    Refused(header, 8);
    header = Header(0, 8, 1);
    header.frame.length = 16;  // the remaining bytes have no tag
    Refused(header, 8);
    header = Header(0, 8, 1);
    header.frame.magic = 1;
    Refused(header, 8);
    EXPECT_FALSE(inbox_.Take(std::vector<std::byte>(sizeof(MpiHeader) - 1)).ok());
}

TEST_F(MpiInboxTest, AFlagIsNeverLowered) {
    ASSERT_TRUE(inbox_.Take(Message(Header(0, 8, 7), 8)).ok());
    EXPECT_FALSE(inbox_.Take(Message(Header(0, 8, 6), 8)).ok());
    EXPECT_EQ(inbox_.flag(3), 7u);
}

// Whatever arrives, nothing is written outside the window (the sanitizers check this), and a
// refused message raises no flag.
TEST_F(MpiInboxTest, RandomMessagesStayInTheWindow) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 20'000; ++i) {
        const size_t bytes = random() % 300;
        MpiHeader header =
            Header(random() % (2 * kMpiInboxWindow), static_cast<uint32_t>(bytes), random() % 4);
        if (random() % 2 == 0) header.frame.length = random() % (2 * kMpiInboxWindow);
        if (random() % 2 == 0) header.bulk_tag = static_cast<uint32_t>(random() % 3);
        if (random() % 8 == 0) header.bytes_here = static_cast<uint32_t>(random());
        if (random() % 8 == 0) header.frame.offset = random();
        if (random() % 8 == 0) header.frame.flag = static_cast<uint32_t>(random() % 20);
        const auto taken = inbox_.Take(Message(header, bytes));
        if (!taken.ok() || !taken->has_value()) continue;
        const auto into = (*taken)->into;
        EXPECT_GE(into.data(), window_.data());
        EXPECT_LE(into.data() + into.size(), window_.data() + window_.size());
        EXPECT_GT(into.size(), 0u);
    }
}

}  // namespace
}  // namespace weft::net
