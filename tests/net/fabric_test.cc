// Making fabrics: offers, tokens, strangers on the data port, ranks that never come, and no
// leftovers.
#include "net/fabric.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "net/frame.h"
#include "net/local.h"
#include "net/offer.h"
#include "net/socket.h"
#include "net/tcp_link.h"
#include "net/wait_policy.h"
#include "support/limits.h"
#include "support/ranks.h"
#include "support/wait.h"

namespace weft::net {
namespace {

constexpr size_t kWindow = size_t{64} << 10;
const OpTag kTag{"barrier", 1, 2};

// Entries whose name has `word` in it.
size_t CountIn(const char* folder, const char* word = "") {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        count += entry.path().filename().string().find(word) != std::string::npos ? 1 : 0;
    }
    return count;
}

std::vector<std::unique_ptr<FabricBuilder>> Builders(
    int size, Transport transport, Encryption encryption = Encryption::kBetweenHosts) {
    std::vector<std::unique_ptr<FabricBuilder>> builders;
    for (int rank = 0; rank < size; rank++) {
        FabricOptions options;
        options.rank = rank;
        options.size = size;
        options.transport = transport;
        options.encryption = encryption;
        options.window_bytes = kWindow;
        options.epoch = 3;
        options.listen_host = "127.0.0.1";
        builders.push_back(FabricBuilder::Make(options).value());
    }
    return builders;
}

std::vector<std::string> OffersTo(const std::vector<std::unique_ptr<FabricBuilder>>& builders,
                                  int rank) {
    std::vector<std::string> offers;
    for (const auto& builder : builders) offers.push_back(builder->OfferTo(rank));
    return offers;
}

std::vector<Result<Fabric>> ConnectAll(std::vector<std::unique_ptr<FabricBuilder>>& builders,
                                       const std::vector<std::vector<std::string>>& offers,
                                       int64_t ms) {
    std::vector<Result<Fabric>> made;
    for (size_t r = 0; r < builders.size(); r++) {
        made.emplace_back(MakeError(ErrorCode::kCancelled, "not run"));
    }
    std::vector<std::thread> threads;
    for (size_t r = 0; r < builders.size(); r++) {
        threads.emplace_back(
            [&, r] { made[r] = builders[r]->Connect(offers[r], Deadline::In(ms)); });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
}

bool Talks(Fabric& a, Fabric& b) {
    const Deadline deadline = Deadline::In(2000);
    return a.links[b.rank]->Put(0, {}, {}, 0, 1, kTag, deadline).ok() &&
           b.links[a.rank]->Wait(0, 1, kTag, deadline).ok();
}

TEST(Fabric, AutoTakesSharedMemoryOnOneHost) {
    auto fabrics = MakeLocalFabrics(2, Transport::kAuto, kWindow).value();
    EXPECT_EQ("shm", fabrics[0].transport);
    EXPECT_EQ("shm", fabrics[1].links[0]->peer().transport);
    EXPECT_TRUE(Talks(fabrics[0], fabrics[1]));
}

TEST(Fabric, AutoTakesTcpBetweenHostsAndShmIsRefused) {
    Offer mine;
    mine.boot_id = "a";
    mine.network = "n";
    mine.unix_name = "u";
    Offer theirs = mine;
    theirs.boot_id = "b";
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value());
    theirs.boot_id = "a";
    EXPECT_EQ(Transport::kShm, ChooseTransport(mine, theirs).value());
    theirs.unix_name = "";
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value()) << "it shares no memory";
    theirs.network = "other";
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value());
    mine.transport = theirs.transport = Transport::kShm;
    EXPECT_EQ(ErrorCode::kUsage, ChooseTransport(mine, theirs).error().code);
    theirs.transport = Transport::kTcp;
    EXPECT_EQ(ErrorCode::kUsage, ChooseTransport(mine, theirs).error().code);
    mine = theirs = Offer{};
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value()) << "nothing known: not one";
}

// In a sandbox that hides the boot id, network namespaces have the same number on every host.
TEST(Fabric, AHalfKnownKernelIsNone) {
    EXPECT_EQ(KernelId("", "net:[4026531840]"), "");
    EXPECT_EQ(KernelId("4f2c", ""), "");
    EXPECT_EQ(KernelId("4f2c", "net:[4026531840]"), "4f2cnet:[4026531840]");
    Offer mine;
    mine.network = "net:[4026531840]";
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, mine).value());
}

TEST(Fabric, RanksThatDisagreeOnChecksumsAreNotJoined) {
    auto builders = Builders(2, Transport::kTcp);
    std::vector<std::vector<std::string>> offers;
    for (int r = 0; r < 2; r++) offers.push_back(OffersTo(builders, r));
    Offer offer = DecodeOffer(offers[1][0]).value();
    offer.checksum = true;
    offers[1][0] = EncodeOffer(offer);
    auto made = ConnectAll(builders, offers, 300);
    ASSERT_FALSE(made[1].ok());
    EXPECT_EQ(
        "rank 0 (host localhost, auto) sends checksums, rank 1 does not. Give all ranks "
        "--checksum, or none.",
        made[1].error().message);
}

TEST(Fabric, EveryOfferHasASecretAndATokenOfItsOwn) {
    std::set<LinkSecret> secrets = {LinkSecret{}};
    std::set<Token> tokens = {Token{}};
    for (int job = 0; job < 2; ++job) {
        const auto builders = Builders(3, Transport::kTcp);
        for (int from = 0; from < 3; from++) {
            for (int to = 0; to < 3; to++) {
                if (from == to) continue;
                const auto& builder = builders[static_cast<size_t>(from)];
                const Offer offer = DecodeOffer(builder->OfferTo(to)).value();
                EXPECT_TRUE(secrets.insert(offer.secret).second) << from << to;
                EXPECT_TRUE(tokens.insert(offer.token).second) << from << to;
            }
        }
    }
}

// Each direction of an encrypted link has a key that depends on the secrets of both offers: if one
// rank got another secret than its peer sent, no data passes.
TEST(Fabric, TheKeysOfALinkDependOnTheSecretsOfBothOffers) {
    const auto talks = [](int changed, int from) {  // changed: the rank of that offer; -1: none
        auto builders = Builders(2, Transport::kTcp, Encryption::kAlways);
        std::vector<std::vector<std::string>> offers;
        for (int r = 0; r < 2; r++) offers.push_back(OffersTo(builders, r));
        if (changed >= 0) {
            std::string& sent =
                offers[static_cast<size_t>(1 - changed)][static_cast<size_t>(changed)];
            Offer offer = DecodeOffer(sent).value();
            offer.secret[31] ^= 1;
            sent = EncodeOffer(offer);
        }
        auto made = ConnectAll(builders, offers, 10'000);
        for (const auto& fabric : made) EXPECT_TRUE(fabric.ok()) << fabric.error().message;
        Fabric& sender = *made[static_cast<size_t>(from)];
        return Talks(sender, *made[static_cast<size_t>(1 - from)]);
    };
    for (const int from : {0, 1}) {
        EXPECT_TRUE(talks(-1, from)) << from;
        for (const int changed : {0, 1}) EXPECT_FALSE(talks(changed, from)) << changed << from;
    }
}

TEST(Fabric, MixedTransportsServeBoth) {
    // Ranks 0 and 1 share a host, rank 2 is elsewhere: its offers are given another network.
    auto builders = Builders(3, Transport::kAuto);
    std::vector<std::vector<std::string>> offers;
    for (int r = 0; r < 3; r++) offers.push_back(OffersTo(builders, r));
    for (int r = 0; r < 3; r++) {
        for (int p = 0; p < 3; p++) {
            if (r == p || (r != 2 && p != 2)) continue;
            Offer offer = DecodeOffer(offers[r][p]).value();
            offer.network = "net:[elsewhere]";
            offers[r][p] = EncodeOffer(offer);
        }
    }
    auto made = ConnectAll(builders, offers, 5000);
    for (auto& fabric : made) ASSERT_TRUE(fabric.ok()) << fabric.error().message;
    EXPECT_EQ("shm+tcp", made[0]->transport);
    EXPECT_EQ("tcp", made[2]->transport);
    EXPECT_TRUE(Talks(*made[0], *made[1]));
    EXPECT_TRUE(Talks(*made[2], *made[1]));
    // A rank that waits on shared memory drains its sockets: 2 floods 1, which waits for 0.
    std::thread flood([&] {
        const std::vector<std::byte> data(kWindow);
        for (uint64_t i = 2; i < 600; i++) {
            ASSERT_TRUE(made[2]->links[1]->Put(0, {}, data, 0, i, kTag, Deadline::In(5000)).ok());
        }
        ASSERT_TRUE(made[2]->links[0]->Put(0, {}, {}, 0, 1, kTag, Deadline::In(5000)).ok());
    });
    std::thread relay([&] {
        ASSERT_TRUE(made[0]->links[2]->Wait(0, 1, kTag, Deadline::In(5000)).ok());
        ASSERT_TRUE(made[0]->links[1]->Put(0, {}, {}, 0, 2, kTag, Deadline::In(5000)).ok());
    });
    EXPECT_TRUE(made[1]->links[0]->Wait(0, 2, kTag, Deadline::In(5000)).ok());
    flood.join();
    relay.join();
}

TEST(Fabric, UnknownCallersAreRejectedAndRanksConnect) {
    for (Transport transport : {Transport::kShm, Transport::kTcp}) {
        auto builders = Builders(2, transport);
        std::vector<std::vector<std::string>> offers{OffersTo(builders, 0), OffersTo(builders, 1)};
        const Offer target = DecodeOffer(offers[1][0]).value();
        // Garbage, a greeting with a wrong token, one that is cut short, silence.
        std::vector<Fd> strangers;
        for (int kind = 0; kind < 4; kind++) {
            Fd fd = transport == Transport::kShm
                        ? DialUnix(target.unix_name, Deadline::In(1000)).value()
                        : DialTcp("127.0.0.1", target.tcp_port, Deadline::In(1000)).value();
            std::string bytes(4096, 'x');
            Greeting greeting{.from = 1, .to = 0, .epoch = 3, .token = target.token};
            greeting.token[5] ^= 1;
            if (kind == 1) bytes.assign(reinterpret_cast<char*>(&greeting), sizeof greeting);
            if (kind == 2) bytes.resize(17);
            if (kind == 3) bytes.clear();
            if (!bytes.empty()) ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (kind == 2) fd.Reset();
            strangers.push_back(std::move(fd));
        }
        auto made = ConnectAll(builders, offers, 5000);
        for (auto& fabric : made) ASSERT_TRUE(fabric.ok()) << fabric.error().message;
        EXPECT_TRUE(Talks(*made[0], *made[1]));
        builders.clear();
        char byte;
        EXPECT_LE(::recv(strangers[0].get(), &byte, 1, 0), 0);
        EXPECT_LE(::recv(strangers[1].get(), &byte, 1, 0), 0);
    }
}

TEST(Fabric, ADiallerRefusesAnImpostor) {
    auto builders = Builders(2, Transport::kTcp);
    std::vector<std::vector<std::string>> offers{OffersTo(builders, 0), OffersTo(builders, 1)};
    Fd impostor = ListenTcp("127.0.0.1", 0).value();
    Offer offer = DecodeOffer(offers[1][0]).value();
    offer.tcp_port = BoundPort(impostor.get()).value();
    offers[1][0] = EncodeOffer(offer);
    std::thread answer([&] {
        SetBlocking(impostor.get(), true);
        Fd fd = Accept(impostor.get());
        const Greeting greeting{.from = 0, .to = 1, .epoch = 3};
        ::send(fd.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
        SetBlocking(fd.get(), true);
        char byte;
        while (::recv(fd.get(), &byte, 1, 0) > 0) continue;
    });
    const auto made = builders[1]->Connect(offers[1], Deadline::In(3000));
    builders.clear();
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(ErrorCode::kDenied, made.error().code) << made.error().message;
    answer.join();
}

// The paths are: one where nobody listens, one where another program answers, one where the
// connection is closed, one that stays silent, and then the rank's.
TEST(Fabric, ADiallerTriesTheWaysOfAnOfferUntilTheRankAnswers) {
    auto builders = Builders(2, Transport::kTcp);
    std::vector<std::vector<std::string>> offers{OffersTo(builders, 0), OffersTo(builders, 1)};
    Fd impostor = ListenTcp("127.0.0.1", 0).value(), silent = ListenTcp("127.0.0.1", 0).value();
    Fd rude = ListenTcp("127.0.0.1", 0).value();
    uint16_t dead_port;
    {
        const Fd dead = ListenTcp("127.0.0.1", 0).value();
        dead_port = BoundPort(dead.get()).value();
    }
    Offer offer = DecodeOffer(offers[1][0]).value();
    offer.tcp_more = {{"127.0.0.1", BoundPort(impostor.get()).value()},
                      {"127.0.0.1", BoundPort(rude.get()).value()},
                      {"127.0.0.1", BoundPort(silent.get()).value()},
                      {offer.tcp_host, offer.tcp_port}};
    offer.tcp_port = dead_port;
    offers[1][0] = EncodeOffer(offer);
    EXPECT_EQ(DecodeOffer(offers[1][0])->tcp_more, offer.tcp_more);
    std::thread answer([&] {
        SetBlocking(impostor.get(), true);
        SetBlocking(rude.get(), true);
        const Fd fd = Accept(impostor.get());
        const Greeting greeting{.from = 0, .to = 1, .epoch = 3};
        ::send(fd.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
        const Fd hung_up = Accept(rude.get());
    });
    auto made = ConnectAll(builders, offers, 20'000);
    answer.join();
    for (const auto& fabric : made) ASSERT_TRUE(fabric.ok()) << fabric.error().message;
    EXPECT_TRUE(Talks(*made[0], *made[1]));
    EXPECT_TRUE(Talks(*made[1], *made[0]));
}

TEST(Fabric, WaysThatAllLeadNowhereAreListed) {
    auto builders = Builders(2, Transport::kTcp);
    auto offers = OffersTo(builders, 1);
    builders[0].reset();
    Offer offer = DecodeOffer(offers[0]).value();
    offer.tcp_more = {{"127.0.0.2", offer.tcp_port}, {"127.0.0.3", offer.tcp_port}};
    offers[0] = EncodeOffer(offer);
    const auto made = builders[1]->Connect(offers, Deadline::In(5000));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(ErrorCode::kPeerLost, made.error().code);
    for (const char* host : {"127.0.0.1:", "127.0.0.2:", "127.0.0.3:"}) {
        EXPECT_NE(made.error().message.find(std::string("cannot connect to ") + host),
                  std::string::npos)
            << made.error().message;
    }
}

TEST(Fabric, ListensOnTheAddressesOfItsWaysAlone) {
    FabricOptions options;
    options.size = 3;
    options.transport = Transport::kTcp;
    options.window_bytes = kWindow;
    options.ways = {{}, {{"127.0.0.5", "127.0.0.5"}}, {{"127.0.0.5", "peer"}, {"::1", "::1"}}};
    const auto builder = FabricBuilder::Make(options).value();
    const Offer one = DecodeOffer(builder->OfferTo(1)).value();
    const Offer two = DecodeOffer(builder->OfferTo(2)).value();
    EXPECT_EQ(one.tcp_host, "127.0.0.5");
    EXPECT_TRUE(one.tcp_more.empty());
    EXPECT_EQ(two.tcp_host, "peer");
    EXPECT_EQ(two.tcp_port, one.tcp_port);
    EXPECT_TRUE(DialTcp("127.0.0.5", one.tcp_port, Deadline::In(1000)).ok());
    EXPECT_FALSE(DialTcp("127.0.0.1", one.tcp_port, Deadline::In(1000)).ok());
    EXPECT_FALSE(DialTcp("::1", one.tcp_port, Deadline::In(1000)).ok());
}

// Number of this process's TCP listeners.
size_t CountListeners() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::atoi(entry.path().filename().c_str());
        int listens = 0, domain = 0;
        socklen_t size = sizeof listens;
        if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) continue;
        size = sizeof domain;
        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
        count += listens == 1 && domain != AF_UNIX ? 1 : 0;
    }
    return count;
}

TEST(Fabric, ListensNowhereWithoutAnyWay) {
    FabricOptions options;
    options.size = 3;
    options.transport = Transport::kTcp;
    options.window_bytes = kWindow;
    options.ways.resize(3);
    const size_t before = CountListeners();
    const auto builder = FabricBuilder::Make(options).value();
    EXPECT_EQ(CountListeners(), before);
    EXPECT_TRUE(DecodeOffer(builder->OfferTo(1))->tcp_host.empty());
    options.ways.clear();
    options.listen_host = "127.0.0.1";
    const auto other = FabricBuilder::Make(options).value();
    EXPECT_EQ(CountListeners(), before + 1);
}

// Two paths stay silent for a while. Then the first is closed, and nobody listens at the last one:
// the answer arrives on the second.
TEST(Fabric, AWayThatIsStillOpenIsWaitedForWhereNoOtherIsLeft) {
    auto builders = Builders(2, Transport::kTcp);
    std::vector<std::string> offers = OffersTo(builders, 1);
    const Offer to_rank_zero = DecodeOffer(builders[1]->OfferTo(0)).value();
    Fd first = ListenTcp("127.0.0.1", 0).value(), second = ListenTcp("127.0.0.1", 0).value();
    Offer offer = DecodeOffer(offers[0]).value();
    offer.tcp_more = {{"127.0.0.1", BoundPort(second.get()).value()},
                      {"127.0.0.9", BoundPort(first.get()).value()}};
    offer.tcp_port = BoundPort(first.get()).value();
    offers[0] = EncodeOffer(offer);
    constexpr int64_t kMomentMs = 200;
    std::atomic<bool> over = false;
    std::thread answer([&] {
        SetBlocking(first.get(), true);
        SetBlocking(second.get(), true);
        Fd one = Accept(first.get());
        const Fd two = Accept(second.get());
        first.Reset();
        one.Reset();
        test::Outlast(kMomentMs);
        const Greeting greeting{.from = 0, .to = 1, .epoch = 3, .token = to_rank_zero.token};
        ::send(two.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
        over.wait(false);
    });
    const auto made = builders[1]->Connect(offers, Deadline::In(10'000));
    over = true;
    over.notify_all();
    answer.join();
    EXPECT_TRUE(made.ok()) << made.error().message;
}

// Four peers whose first path drops all packets: it is abandoned for all of them at the same time.
TEST(Fabric, WaysThatSwallowConnectionsAreTriedSideBySide) {
    constexpr int kSize = 5;
    auto builders = Builders(kSize, Transport::kTcp);
    // Its queue is full, so it answers nobody.
    Fd hole(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(hole.get(), at, sizeof address), 0);
    ASSERT_EQ(::listen(hole.get(), 0), 0);
    const uint16_t port = BoundPort(hole.get()).value();
    std::vector<Fd> fill;
    for (int i = 0; i < 2; i++) {
        auto fd = DialTcp("127.0.0.1", port, Deadline::In(100));
        if (fd.ok()) fill.push_back(*std::move(fd));
    }
    std::vector<std::vector<std::string>> offers;
    for (int r = 0; r < kSize; r++) offers.push_back(OffersTo(builders, r));
    for (int peer = 0; peer + 1 < kSize; peer++) {
        Offer offer = DecodeOffer(offers[kSize - 1][peer]).value();
        offer.tcp_more = {{offer.tcp_host, offer.tcp_port}};
        offer.tcp_port = port;
        offers[kSize - 1][peer] = EncodeOffer(offer);
    }
    const int64_t begin = NowNs();
    auto made = ConnectAll(builders, offers, 20'000);
    const int64_t ms = (NowNs() - begin) / 1'000'000;
    for (const auto& fabric : made) ASSERT_TRUE(fabric.ok()) << fabric.error().message;
    EXPECT_TRUE(Talks(*made[4], *made[3]));
    EXPECT_GE(ms, 900) << "the first way took connections";
    EXPECT_LT(ms, 3500);
}

// Rank 1's first packet to rank 0 is lost, and a second path leads to another listener. Meanwhile
// rank 2 joins, and then the first path works.
TEST(Fabric, ASilentWayIsTriedAgainAndDelaysNoOtherRank) {
    auto builders = Builders(3, Transport::kTcp);
    std::vector<std::string> offers = OffersTo(builders, 1);
    const Offer to_zero = DecodeOffer(builders[1]->OfferTo(0)).value();
    const Offer to_two = DecodeOffer(builders[1]->OfferTo(2)).value();
    Fd hole = ListenTcp("127.0.0.1", 0).value(), rude = ListenTcp("127.0.0.1", 0).value();
    ASSERT_EQ(::listen(hole.get(), 0), 0);
    const uint16_t port = BoundPort(hole.get()).value();
    std::vector<Fd> fill;  // the queue is full, so nobody is answered
    for (int i = 0; i < 2; i++) {
        auto fd = DialTcp("127.0.0.1", port, Deadline::In(100));
        if (fd.ok()) fill.push_back(*std::move(fd));
    }
    Offer offer = DecodeOffer(offers[0]).value();
    offer.tcp_port = port;
    offer.tcp_more = {{"127.0.0.1", BoundPort(rude.get()).value()}};
    offers[0] = EncodeOffer(offer);
    std::optional<Result<Fabric>> made;
    std::thread joins([&] { made = builders[1]->Connect(offers, Deadline::In(60'000)); });

    const Fd two = DialTcp("127.0.0.1", to_two.tcp_port, Deadline::In(5000)).value();
    SetBlocking(two.get(), true);
    Greeting greeting{.from = 2, .to = 1, .epoch = 3, .token = to_two.token};
    ::send(two.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
    EXPECT_EQ(::recv(two.get(), &greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    EXPECT_EQ(greeting.from, 1);

    SetBlocking(rude.get(), true);
    Accept(rude.get()).Reset();
    fill.clear();
    SetBlocking(hole.get(), true);
    Fd zero;
    ssize_t got = 0;
    while (got != sizeof greeting) {
        zero = Accept(hole.get());
        SetBlocking(zero.get(), true);
        got = ::recv(zero.get(), &greeting, sizeof greeting, MSG_WAITALL);
    }
    greeting = {.from = 0, .to = 1, .epoch = 3, .token = to_zero.token};
    ::send(zero.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
    joins.join();
    EXPECT_TRUE(made->ok()) << made->error().message;
}

// The first caller is served before a crowd of later ones is accepted.
TEST(Fabric, ManyUnknownCallersDisplaceNoRank) {
    auto builders = Builders(2, Transport::kTcp);
    const auto offers = OffersTo(builders, 1), own = OffersTo(builders, 0);
    const uint16_t port = DecodeOffer(offers[0])->tcp_port;
    std::optional<Result<Fabric>> one;
    std::atomic<pid_t> dialer = 0;
    std::thread dials([&] {
        dialer = ::gettid();
        dialer.notify_all();
        one = builders[1]->Connect(offers, Deadline::In(5000));
    });
    dialer.wait(0);
    ASSERT_TRUE(test::Sleeps(dialer));
    std::vector<Fd> crowd;
    for (int i = 0; i < 120; i++) {
        crowd.push_back(DialTcp("127.0.0.1", port, Deadline::In(1000)).value());
    }
    auto zero = builders[0]->Connect(own, Deadline::In(5000));
    dials.join();
    ASSERT_TRUE(zero.ok()) << zero.error().message;
    ASSERT_TRUE(one->ok()) << one->error().message;
    EXPECT_TRUE(Talks(*zero, **one));
}

TEST(Fabric, MissingRanksAreNamed) {
    auto builders = Builders(3, Transport::kTcp);
    const auto made = builders[0]->Connect(OffersTo(builders, 0), Deadline::In(100));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(ErrorCode::kTimeout, made.error().code);
    EXPECT_NE(std::string::npos,
              made.error().message.find("no data link from rank 1 (host localhost, tcp), rank 2 "
                                        "(host localhost, tcp) within 100 ms"))
        << made.error().message;
}

TEST(Fabric, ADeadRanksAddressIsAnErrorAtOnce) {
    for (Transport transport : {Transport::kShm, Transport::kTcp}) {
        auto builders = Builders(2, transport);
        const auto offers = OffersTo(builders, 1);
        builders[0].reset();
        const auto made = builders[1]->Connect(offers, Deadline::In(5000));
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(ErrorCode::kPeerLost, made.error().code);
        EXPECT_EQ(0u, made.error().message.find("rank 0 (host localhost"));
    }
}

TEST(Fabric, HostileOffersAreRefused) {
    auto builders = Builders(2, Transport::kTcp);
    const std::string good = builders[0]->OfferTo(1);
    for (size_t length = 0; length < good.size(); length++) {
        EXPECT_EQ(ErrorCode::kCorrupt, DecodeOffer(good.substr(0, length)).error().code);
    }
    EXPECT_FALSE(DecodeOffer(good + "x").ok());
    std::mt19937 random(1);
    for (int i = 0; i < 3000; i++) {
        std::string bad = good;
        for (int k = 0; k < 3; k++) bad[random() % bad.size()] ^= static_cast<char>(random());
        const Result<Offer> offer = DecodeOffer(bad);  // must not crash; may still be well-formed
        if (!offer.ok()) continue;
        EXPECT_LT(offer->from, offer->size);
    }
    const std::pair<const char*, void (*)(Offer&)> faults[] = {
        {"from", [](Offer& offer) { offer.from = -1; }},
        {"from", [](Offer& offer) { offer.from = offer.size; }},
        {"to", [](Offer& offer) { offer.to = -1; }},
        {"to", [](Offer& offer) { offer.to = offer.size; }},
        {"size", [](Offer& offer) { offer.size = 4097; }},
        {"encryption", [](Offer& offer) { offer.encryption = static_cast<Encryption>(3); }},
        {"transport", [](Offer& offer) { offer.transport = static_cast<Transport>(5); }},
        {"MPI rank", [](Offer& offer) { offer.mpi_rank = -1; }}};
    for (const auto& [what, change] : faults) {
        Offer offer = DecodeOffer(good).value();
        change(offer);
        EXPECT_FALSE(DecodeOffer(EncodeOffer(offer)).ok()) << what;
    }
    // Ranks that do not agree.
    for (int what = 0; what < 5; what++) {
        auto again = Builders(2, Transport::kTcp);
        auto offers = OffersTo(again, 1);
        Offer offer = DecodeOffer(offers[0]).value();
        if (what == 0) offer.epoch++;
        if (what == 1) offer.window_bytes *= 2;
        if (what == 2) offer.size = 3;
        if (what == 3) offer.transport = Transport::kShm;
        if (what == 4) offer.encryption = Encryption::kNever;
        offers[0] = EncodeOffer(offer);
        const auto made = again[1]->Connect(offers, Deadline::In(1000));
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(ErrorCode::kUsage, made.error().code) << made.error().message;
    }
}

TEST(Fabric, NothingIsLeftAfterTwoHundredRounds) {
    const auto round = [](Transport transport) {
        auto fabrics = MakeLocalFabrics(3, transport, kWindow).value();
        ASSERT_TRUE(Talks(fabrics[0], fabrics[2]));
    };
    round(Transport::kShm);
    const size_t descriptors = CountIn("/proc/self/fd");
    const size_t segments = CountIn("/dev/shm", "weft");  // others may have theirs there
    for (int i = 0; i < 200; i++) round(i % 2 == 0 ? Transport::kShm : Transport::kTcp);
    EXPECT_EQ(descriptors, CountIn("/proc/self/fd"));
    EXPECT_EQ(segments, CountIn("/dev/shm", "weft"));
}

// A tcp link whose peer is a plain socket, which can send data that a rank never would.
struct Raw {
    Raw() {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
        peer = Fd(ends[1]);
        link = MakeTcpLink(progress, {1, "b", "tcp"}, Fd(ends[0]), 5, kWindow).value();
        progress.Add(link.get(), Progress::Data::kSocket);
    }
    void Say(const FrameHeader& header, std::string_view payload = {}) {
        ::send(peer.get(), &header, sizeof header, MSG_NOSIGNAL);
        if (!payload.empty()) ::send(peer.get(), payload.data(), payload.size(), MSG_NOSIGNAL);
    }
    Progress progress;
    Fd peer;
    std::unique_ptr<BaseLink> link;
};

TEST(TcpLink, LateFramesOfAnOlderEpochAreDropped) {
    Raw raw;
    raw.Say({.flag = 0, .epoch = 4, .length = 4, .value = 9}, "late");
    raw.Say({.flag = 1, .epoch = 5, .offset = 4, .length = 4, .value = 1}, "good");
    ASSERT_TRUE(raw.link->Wait(1, 1, kTag, Deadline::In(1000)).ok());
    EXPECT_EQ(0u, raw.link->flag(0));
    EXPECT_EQ(0, std::memcmp(raw.link->window().data(), "\0\0\0\0good", 8));
}

// Another thread reads the socket between the look of this one and its sleep.
TEST(TcpLink, AThreadDoesNotSleepThroughDataThatAnotherReceived) {
    Raw raw;
    raw.progress.SetShared();
    const uint64_t seen = raw.progress.received();
    raw.Say({.flag = 0, .epoch = 5, .offset = 0, .length = 4, .value = 1}, "data");
    const int64_t begin_ns = NowNs();
    std::thread([&] {
        while (raw.link->flag(0) < 1) raw.link->Receive();
    }).join();
    raw.progress.SleepOnSockets(-1, 60'000, seen);
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(10'000));
    // While nothing was received since, it sleeps; its first sleep did not use up a later wake.
    const uint64_t now = raw.progress.received();
    raw.progress.SleepOnSockets(-1, 1, now);
    EXPECT_EQ(raw.progress.received(), now);
}

TEST(TcpLink, AFrameOutsideTheWindowEndsTheLinkWithItsReason) {
    Raw raw;
    raw.Say({.flag = 0, .epoch = 5, .offset = kWindow - 3, .length = 4, .value = 1}, "over");
    const Status waited = raw.link->Wait(0, 1, kTag, Deadline::In(1000));
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(ErrorCode::kPeerLost, waited.error().code);
    EXPECT_NE(std::string::npos, waited.error().message.find("broke the protocol: a frame of 4"))
        << waited.error().message;
}

// The cluster's state, which waits query.
class FakeMonitor final : public PeerMonitor {
  public:
    bool Failed() const override { return failed; }
    Error Failure() const override { return {ErrorCode::kPeerLost, "verdict: rank 9"}; }
    int64_t SilentMs(int) const override { return NowNs() < progress_until_ns ? 1 : 100'000; }
    Error OnTimeout(int rank, const OpTag& tag, const Deadline&) override {
        return MakeError(ErrorCode::kPeerLost, "asked about rank {} in {}", rank, tag.Text());
    }
    void OnLongWait(int rank, const OpTag&) override { long_waits += rank >= 0 ? 1 : 0; }
    void OnStillWaiting(int64_t ms) override {
        most_still_ms = std::max(most_still_ms.load(), ms);
        still_ms = ms;
    }
    std::atomic<bool> failed{false};
    int64_t progress_until_ns = 0;
    int long_waits = 0;
    std::atomic<int64_t> still_ms = 0, most_still_ms = 0;
};

// A message that arrives byte by byte is slow; one that stops half way is stalled.
TEST(Monitor, SlowTransferIsDistinguishedFromAStalledOne) {
    for (const bool stops : {false, true}) {
        Raw raw;
        FakeMonitor monitor;
        raw.progress.SetMonitor(&monitor);
        std::thread sender([&] {
            const FrameHeader header{.flag = 0, .epoch = 5, .offset = 0, .length = 40, .value = 1};
            std::array<char, sizeof header + 40> bytes{};
            std::memcpy(bytes.data(), &header, sizeof header);
            const test::Pace slow(20'000);
            for (size_t i = 0; i < bytes.size(); i++) {
                if (stops && i == 30) test::Until([&] { return monitor.most_still_ms >= 700; });
                EXPECT_EQ(::send(raw.peer.get(), &bytes[i], 1, MSG_NOSIGNAL), 1);
                slow.Next();
            }
        });
        // (No progress counter moves: only received bytes extend the wait beyond its deadline.)
        const Status waited = raw.link->Wait(0, 1, kTag, Deadline::In(1200));
        sender.join();
        EXPECT_TRUE(waited.ok()) << waited.error().message;
        EXPECT_EQ(monitor.long_waits, 1);
        if (stops) {
            EXPECT_GE(monitor.most_still_ms, 700);
        } else {
            EXPECT_LE(monitor.most_still_ms, test::Nightly() ? 500 : 1000);
        }
    }
}

// Short waits are not reported; a long one is reported several times per second.
TEST(Monitor, LongWaitReportsTheTimeWithoutData) {
    for (Transport transport : {Transport::kShm, Transport::kTcp}) {
        auto fabrics = MakeLocalFabrics(2, transport, kWindow).value();
        FakeMonitor monitor;
        fabrics[0].state->SetMonitor(&monitor);
        const int64_t begin_ns = NowNs();
        std::thread later([&] {
            EXPECT_TRUE(test::Until([&] { return monitor.still_ms >= 400; }));
            EXPECT_TRUE(fabrics[1].links[0]->Put(0, {}, {}, 0, 1, kTag, Deadline::In(1000)).ok());
        });
        EXPECT_TRUE(fabrics[0].links[1]->Wait(0, 1, kTag, Deadline::In(20'000)).ok());
        const int64_t waited_ms = (NowNs() - begin_ns) / 1'000'000;
        later.join();
        EXPECT_EQ(monitor.long_waits, 1);
        EXPECT_GE(monitor.still_ms, 400);
        EXPECT_LE(monitor.still_ms, waited_ms + 1);
    }
}

TEST(Monitor, ItsVerdictEndsAWaitOnBothTransports) {
    for (Transport transport : {Transport::kShm, Transport::kTcp}) {
        auto fabrics = MakeLocalFabrics(2, transport, kWindow).value();
        FakeMonitor monitor;
        fabrics[0].state->SetMonitor(&monitor);
        std::thread later([&, waits = ::gettid()] {
            EXPECT_TRUE(test::Sleeps(waits));
            monitor.failed = true;
        });
        const int64_t begin = NowNs();
        const Status waited = fabrics[0].links[1]->Wait(0, 1, kTag, Deadline::In(5000));
        later.join();
        ASSERT_FALSE(waited.ok());
        EXPECT_EQ("verdict: rank 9", waited.error().message);
        EXPECT_LT(NowNs() - begin, test::LimitNs(3000));
    }
}

TEST(Monitor, ASlowPeerIsWaitedForAndADeadOneIsNot) {
    for (Transport transport : {Transport::kShm, Transport::kTcp}) {
        auto fabrics = MakeLocalFabrics(2, transport, kWindow).value();
        FakeMonitor monitor;
        monitor.progress_until_ns = NowNs() + 250'000'000;
        fabrics[0].state->SetMonitor(&monitor);
        const int64_t begin = NowNs();
        const Status waited = fabrics[0].links[1]->Wait(0, 1, kTag, Deadline::In(60));
        ASSERT_FALSE(waited.ok());
        EXPECT_EQ("asked about rank 1 in barrier #1 of step 2", waited.error().message);
        EXPECT_GE(NowNs() - begin, 250'000'000);
        EXPECT_LT(NowNs() - begin, test::LimitNs(3000));
    }
}

TEST(Monitor, ALostConnectionAsksForABetterVerdict) {
    auto fabrics = MakeLocalFabrics(2, Transport::kTcp, kWindow).value();
    FakeMonitor monitor;
    fabrics[0].state->SetMonitor(&monitor);
    fabrics.pop_back();
    const Status waited = fabrics[0].links[1]->Wait(0, 1, kTag, Deadline::In(5000));
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ("asked about rank 1 in barrier #1 of step 2", waited.error().message);
}

}  // namespace
}  // namespace weft::net
