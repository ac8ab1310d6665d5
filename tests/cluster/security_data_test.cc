// The data plane accepts each connection that the control plane announced once, and no others.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "net/fabric.h"
#include "net/offer.h"
#include "net/socket.h"

namespace weft::net {
namespace {

constexpr uint64_t kEpoch = 3;

std::unique_ptr<FabricBuilder> Builder(int rank, uint64_t epoch = kEpoch) {
    FabricOptions options;
    options.rank = rank;
    options.size = 3;
    options.transport = Transport::kTcp;
    options.window_bytes = size_t{64} << 10;
    options.epoch = epoch;
    options.listen_host = "127.0.0.1";
    return FabricBuilder::Make(options).value();
}

Fd Knock(const Offer& offer, const Greeting& greeting) {
    Fd fd = DialTcp("127.0.0.1", offer.tcp_port, Deadline::In(1000)).value();
    ::send(fd.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
    return fd;
}

// Whether a greeting was received; false: the connection was closed, or no data arrived.
bool LetIn(const Fd& fd) {
    pollfd entry{fd.get(), POLLIN, 0};
    if (::poll(&entry, 1, 3000) != 1) return false;
    Greeting answer;
    return ::recv(fd.get(), &answer, sizeof answer, 0) == static_cast<ssize_t>(sizeof answer);
}

TEST(SecurityData, OnlyAnnouncedConnectionsAreTakenEachOnce) {
    auto builder = Builder(0);
    const auto one = Builder(1);
    const auto two = Builder(2);
    const auto of_older_epoch = Builder(0, kEpoch - 1);
    const Offer to_one = DecodeOffer(builder->OfferTo(1)).value();
    const Offer to_two = DecodeOffer(builder->OfferTo(2)).value();
    const Token old = DecodeOffer(of_older_epoch->OfferTo(1)).value().token;
    const std::vector<std::string> offers{"", one->OfferTo(0), two->OfferTo(0)};
    Result<Fabric> made = MakeError(ErrorCode::kCancelled, "not run");
    std::thread rank([&] { made = builder->Connect(offers, Deadline::In(20'000)); });

    const Greeting right{.from = 1, .to = 0, .epoch = kEpoch, .token = to_one.token};
    const auto turned_away = [&](auto change, const char* why) {
        Greeting greeting = right;
        change(greeting);
        EXPECT_FALSE(LetIn(Knock(to_one, greeting))) << why;
    };
    turned_away([](Greeting& g) { g.token[15] ^= 0x80; }, "a wrong token");
    turned_away([](Greeting& g) { g.token = {}; }, "no token");
    turned_away([&](Greeting& g) { g.token = old; }, "a token of another epoch");
    turned_away([](Greeting& g) { g.epoch = kEpoch - 1; }, "another epoch");
    turned_away([](Greeting& g) { g.epoch = kEpoch + 1; }, "a later epoch");
    turned_away([](Greeting& g) { g.from = 2; }, "another rank's token");
    turned_away([](Greeting& g) { g.from = 0; }, "our own rank");
    turned_away([](Greeting& g) { g.from = -1; }, "no rank");
    turned_away([](Greeting& g) { g.from = 1 << 30; }, "no rank of this fabric");
    turned_away([](Greeting& g) { g.to = 1; }, "for another rank");
    turned_away([](Greeting& g) { g.version++; }, "another version");
    turned_away([](Greeting& g) { g.magic++; }, "another program");

    const Fd first = Knock(to_one, right);
    EXPECT_TRUE(LetIn(first));
    EXPECT_FALSE(LetIn(Knock(to_one, right))) << "the same token twice";

    const Fd last = Knock(to_two, {.from = 2, .to = 0, .epoch = kEpoch, .token = to_two.token});
    EXPECT_TRUE(LetIn(last));
    rank.join();
    ASSERT_TRUE(made.ok()) << made.error().message;
    builder.reset();
    EXPECT_FALSE(DialTcp("127.0.0.1", to_one.tcp_port, Deadline::In(1000)).ok())
        << "the port outlives the joining";
}

}  // namespace
}  // namespace weft::net
