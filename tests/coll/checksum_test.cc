// Checksums of messages, over a relay that changes one bit: with checksums, the error names the
// message; without them, the sum is silently wrong.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "coll/comm.h"
#include "net/fabric.h"
#include "net/offer.h"
#include "net/socket.h"

namespace weft::coll {
namespace {

constexpr size_t kWindow = size_t{64} << 10;
constexpr int64_t kTimeoutMs = 5000;
constexpr size_t kGreeting = 40, kFrame = 40, kHead = 64;

// Passes bytes in both directions between a caller and `port`, and flips a bit of byte `at` of the
// caller's bytes.
class Relay {
  public:
    Relay(uint16_t port, size_t at)
        : listener_(net::ListenTcp("127.0.0.1", 0).value()),
          thread_([this, port, at] { Run(port, at); }) {}
    ~Relay() {
        stop_ = true;
        thread_.join();
    }
    uint16_t port() const { return net::BoundPort(listener_.get()).value(); }

  private:
    void Run(uint16_t port, size_t at) {
        Fd near;
        while (!stop_ && !near.valid()) {
            pollfd waiting{listener_.get(), POLLIN, 0};
            ::poll(&waiting, 1, 10);
            near = net::Accept(listener_.get());
        }
        if (!near.valid()) return;
        const Fd far = net::DialTcp("127.0.0.1", port, Deadline::In(kTimeoutMs)).value();
        size_t seen = 0;
        while (!stop_) {
            std::array<pollfd, 2> ends{{{near.get(), POLLIN, 0}, {far.get(), POLLIN, 0}}};
            ::poll(ends.data(), ends.size(), 10);
            for (const pollfd& end : ends) {
                if (end.revents == 0) continue;
                std::array<char, 4096> bytes;
                const ssize_t got = ::recv(end.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
                if (got == 0) return;
                if (got < 0) continue;
                const bool out = end.fd == near.get();
                const size_t count = static_cast<size_t>(got);
                if (out && at >= seen && at - seen < count) bytes[at - seen] ^= 4;
                if (out) seen += count;
                ::send(out ? far.get() : near.get(), bytes.data(), count, MSG_NOSIGNAL);
            }
        }
    }

    Fd listener_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

struct Outcome {
    Status status;
    std::vector<float> sum;
};

// Rank 0 of two whose link changes one bit of byte `at` that rank 1 sends.
Outcome SumOverRelay(size_t at, bool checksum) {
    std::vector<std::unique_ptr<net::FabricBuilder>> builders;
    for (int rank = 0; rank < 2; rank++) {
        net::FabricOptions options;
        options.rank = rank;
        options.size = 2;
        options.transport = net::Transport::kTcp;
        options.window_bytes = kWindow;
        options.listen_host = "127.0.0.1";
        options.checksum = checksum;
        builders.push_back(net::FabricBuilder::Make(options).value());
    }
    net::Offer offer = net::DecodeOffer(builders[0]->OfferTo(1)).value();
    const Relay relay(offer.tcp_port, at);
    offer.tcp_port = relay.port();
    const std::vector<std::vector<std::string>> offers = {{"", builders[1]->OfferTo(0)},
                                                          {net::EncodeOffer(offer), ""}};
    std::vector<Outcome> outcomes(2);
    const auto run = [&](size_t rank) {
        net::Fabric fabric =
            builders[rank]->Connect(offers[rank], Deadline::In(kTimeoutMs)).value();
        EXPECT_EQ(checksum, fabric.checksum);
        const Channel channel{.window_begin = 0, .window_bytes = kWindow};
        auto comm = Comm::Make(fabric, {0, 1}, channel, kTimeoutMs).value();
        outcomes[rank].sum.assign(500, 1.5f);
        outcomes[rank].status = comm->AllReduce(outcomes[rank].sum, {"all_reduce", 12, 34});
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    return outcomes[0];
}

TEST(Checksum, AChangedBitOfAMessageIsNamed) {
    const Outcome outcome = SumOverRelay(kGreeting + kFrame + kHead + 123, true);
    ASSERT_FALSE(outcome.status.ok());
    EXPECT_EQ(ErrorCode::kCorrupt, outcome.status.error().code);
    const std::string words = outcome.status.error().message;
    EXPECT_EQ(0u, words.find("rank 1 (host localhost, tcp): message 1 for all_reduce #12"))
        << words;
    EXPECT_NE(std::string::npos, words.find("its 2000 bytes were changed on the way")) << words;
}

TEST(Checksum, WithoutChecksumsACorruptSumIsNotDetected) {
    const Outcome outcome = SumOverRelay(kGreeting + kFrame + kHead + 123, false);
    EXPECT_TRUE(outcome.status.ok());
    size_t wrong = 0;
    for (float value : outcome.sum) wrong += value != 3.0f;
    EXPECT_EQ(1u, wrong);
}

TEST(Checksum, AnUnharmedMessagePasses) {
    const Outcome outcome = SumOverRelay(SIZE_MAX, true);
    EXPECT_TRUE(outcome.status.ok());
    for (float value : outcome.sum) ASSERT_EQ(3.0f, value);
}

}  // namespace
}  // namespace weft::coll
