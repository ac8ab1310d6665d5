// Verbs links on a real kernel stack: no path leaves objects behind, no put waits for receives that
// the peer has not posted, and a host that may not use RDMA reports the reason.
//
// Needs an RDMA device whose port reaches itself, and root: in the guest of tests/rdma.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>

#include "net/offer.h"
#include "support/ranks.h"
#include "support/wait.h"

namespace weft::net {
namespace {

constexpr size_t kVerbsWindow = size_t{64} << 10;
constexpr int kRounds = 30;  // tests/rdma/connect_rounds.cc makes a thousand links
constexpr int kKills = 10;
const OpTag kVerbsTag{"barrier", 1, 2};

class VerbsLink : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!VerbsBuilt()) GTEST_SKIP() << "built without libibverbs";
        if (ListRdmaPorts().empty()) {
            GTEST_SKIP() << "this host has no RDMA device; tests/rdma/guest.py has one";
        }
    }
};

// The kernel's counts of queue pairs, completion queues, memory regions and protection domains.
std::string Resources() {
    std::unique_ptr<FILE, int (*)(FILE*)> out(::popen("rdma resource show", "r"), &::pclose);
    std::string text;
    std::array<char, 256> line;
    while (out != nullptr && std::fgets(line.data(), line.size(), out.get()) != nullptr) {
        text += line.data();
    }
    return text;
}

// The kernel releases what a killed process had a moment after its end.
void ExpectResources(const std::string& before) {
    test::Until([&] { return Resources() == before; }, Deadline::In(5000));
    EXPECT_EQ(before, Resources());
}

FabricOptions OptionsOf(int rank) {
    FabricOptions options;
    options.rank = rank;
    options.size = 2;
    options.transport = Transport::kVerbs;
    options.window_bytes = kVerbsWindow;
    options.listen_host = "127.0.0.1";
    return options;
}

TEST_F(VerbsLink, NothingIsLeftAfterManyRounds) {
    const std::string before = Resources();
    ASSERT_NE("", before) << "'rdma resource show' says nothing";
    for (int round = 0; round < kRounds && !HasFailure(); round++) {
        auto fabrics = MakeLocalFabrics(2, Transport::kVerbs, kVerbsWindow).value();
        const Deadline deadline = Deadline::In(5000);
        for (int rank = 0; rank < 2; rank++) {
            ASSERT_TRUE(
                fabrics[rank].links[1 - rank]->Put(8, {}, {}, 0, 1, kVerbsTag, deadline).ok());
        }
        for (int rank = 0; rank < 2; rank++) {
            ASSERT_TRUE(fabrics[rank].links[1 - rank]->Wait(0, 1, kVerbsTag, deadline).ok());
        }
        if (round == 0) {
            EXPECT_NE(before, Resources()) << "the count counts";
        }
    }
    ExpectResources(before);
}

TEST_F(VerbsLink, NothingIsLeftOfAKilledPeerNorOfWhoLostIt) {
    const std::string before = Resources();
    const test::SharedCount turns;  // of rank 1
    for (int round = 0; round < kKills && !HasFailure(); round++) {
        *turns = 0;
        test::RankProcesses ranks(
            2, Transport::kVerbs, kVerbsWindow, [&](Fabric& fabric) -> std::string {
                const std::vector<std::byte> data(kVerbsWindow);
                Link& link = *fabric.links[1 - fabric.rank];
                for (uint64_t i = 1;; i++) {
                    const Deadline deadline = Deadline::In(5000);
                    const Status put = link.Put(0, {}, data, 0, i, kVerbsTag, deadline);
                    if (!put.ok()) return put.error().message;
                    const Status waited = link.Wait(0, i, kVerbsTag, deadline);
                    if (!waited.ok()) return waited.error().message;
                    if (fabric.rank == 1) ++*turns;
                }
            });
        ASSERT_TRUE(turns.Reaches(round + 1));
        ranks.Signal(1, SIGKILL);
        const std::string words = ranks.Words(0);
        EXPECT_EQ(0u, words.find("rank 1 (host localhost, verbs)")) << words;
    }
    ExpectResources(before);
}

TEST_F(VerbsLink, NothingIsLeftOfHalfALink) {
    const std::string before = Resources();
    {
        auto alone = FabricBuilder::Make(OptionsOf(0)).value();
        alone->OfferTo(1);
        EXPECT_NE(before, Resources());
    }
    ExpectResources(before);
    for (const bool breaks : {false, true}) {
        auto builder = FabricBuilder::Make(OptionsOf(1)).value();
        auto other = FabricBuilder::Make(OptionsOf(0)).value();
        std::vector<std::string> offers = {other->OfferTo(1), ""};
        if (breaks) {
            Offer offer = DecodeOffer(offers[0]).value();
            offer.verbs->gid = GidOfAddress("203.0.113.9");  // no host's: unreachable
            offers[0] = EncodeOffer(offer);
        }
        other.reset();
        const Result<Fabric> made = builder->Connect(offers, Deadline::In(3000));
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(0u, made.error().message.find("rank 0 (host localhost, verbs)"))
            << made.error().message;
        const bool named = made.error().message.find("203.0.113.9") != std::string::npos;
        EXPECT_EQ(breaks, named) << made.error().message;
        builder.reset();
        ExpectResources(before);
    }
}

TEST_F(VerbsLink, AutoTakesItBetweenHostsAndTcpWhereOneSideHasNone) {
    std::string address;
    for (const RdmaPort& port : ListRdmaPorts()) {
        for (const GidEntry& entry : port.gids) {
            if (port.active && entry.roce_v2 && IsIpv4(entry.gid)) address = GidText(entry.gid);
        }
    }
    ASSERT_NE("", address);
    for (const bool both : {true, false}) {
        std::vector<std::unique_ptr<FabricBuilder>> builders;
        std::vector<std::vector<std::string>> offers(2, std::vector<std::string>(2));
        for (int rank = 0; rank < 2; rank++) {
            FabricOptions options = OptionsOf(rank);
            options.transport = Transport::kAuto;
            options.advertise_host = address;
            options.listen_host = "";
            if (!both && rank == 1) options.rdma_device = "none0";
            builders.push_back(FabricBuilder::Make(options).value());
        }
        for (int rank = 0; rank < 2; rank++) {
            Offer offer = DecodeOffer(builders[1 - rank]->OfferTo(rank)).value();
            EXPECT_EQ(both || rank == 1, offer.verbs.has_value()) << offer.verbs_why;
            offer.boot_id = "of another host";
            offers[rank][1 - rank] = EncodeOffer(offer);
        }
        const std::string expected = both ? "verbs" : "tcp";
        const auto join = [&](size_t rank) {
            const auto made = builders[rank]->Connect(offers[rank], Deadline::In(5000));
            EXPECT_EQ(expected, made.ok() ? made->transport : made.error().message);
        };
        std::thread other(join, 1);
        join(0);
        other.join();
    }
}

TEST_F(VerbsLink, ThousandsOfPutsNeedNoReceiver) {
    auto fabrics = MakeLocalFabrics(2, Transport::kVerbs, kVerbsWindow).value();
    const Deadline deadline = Deadline::In(20'000);
    Link& from = *fabrics[0].links[1];
    Link& to = *fabrics[1].links[0];
    // Far more than the receives that rank 1, which does not look, has posted.
    for (uint64_t i = 1; i <= 3000; i++) {
        const size_t at = (i % 100) * 8;
        ASSERT_TRUE(
            from.Put(at, {}, std::as_bytes(std::span(&i, 1)), 2, i, kVerbsTag, deadline).ok());
    }
    ASSERT_TRUE(to.Wait(2, 3000, kVerbsTag, deadline).ok());
    EXPECT_EQ(3000u, to.flag(2));
    for (uint64_t i = 2901; i <= 3000; i++) {
        uint64_t got;
        std::memcpy(&got, to.window().data() + (i % 100) * 8, sizeof got);
        EXPECT_EQ(i, got);
    }
    // And on with a receiver that looks, which posts receives again.
    for (uint64_t i = 3001; i <= 5000; i++) {
        ASSERT_TRUE(from.Put(0, {}, {}, 2, i, kVerbsTag, deadline).ok());
        ASSERT_TRUE(to.Wait(2, i, kVerbsTag, deadline).ok());
        ASSERT_EQ(i, to.flag(2));
    }
}

TEST_F(VerbsLink, FlagsMayJumpFar) {
    auto fabrics = MakeLocalFabrics(2, Transport::kVerbs, kVerbsWindow).value();
    const Deadline deadline = Deadline::In(20'000);
    Link& from = *fabrics[0].links[1];
    Link& to = *fabrics[1].links[0];
    const uint64_t values[] = {1,          (1ull << 28) - 1, (1ull << 28), (1ull << 29) + 5,
                               1ull << 40, (1ull << 40) + 1, ~uint64_t{0}};
    for (const uint64_t value : values) {
        ASSERT_TRUE(from.Put(0, {}, {}, 15, value, kVerbsTag, deadline).ok());
        ASSERT_TRUE(to.Wait(15, value, kVerbsTag, deadline).ok());
        EXPECT_EQ(value, to.flag(15));
        EXPECT_EQ(0u, to.flag(14));
    }
}

// The reason against verbs in the offer of a process that is not root and has `memlock_bytes`.
std::string WordsOfNobody(rlim_t memlock_bytes) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
        const rlimit limit{memlock_bytes, memlock_bytes};
        std::string words = "no fabric";
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::setuid(65534) == 0) {
            auto builder = FabricBuilder::Make(OptionsOf(0));
            words = builder.ok() ? DecodeOffer((*builder)->OfferTo(1))->verbs_why
                                 : builder.error().message;
        }
        [[maybe_unused]] const ssize_t ignored = ::write(ends[1], words.data(), words.size());
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string words(4096, '\0');
    const ssize_t got = ::read(ends[0], words.data(), words.size());
    words.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    ::close(ends[0]);
    ::waitpid(pid, nullptr, 0);
    return words;
}

TEST_F(VerbsLink, TooLittleMemlockAndNoPermissionAreNamed) {
    if (::geteuid() != 0) GTEST_SKIP() << "not root";
    std::vector<std::string> nodes;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/infiniband")) {
        nodes.push_back(entry.path().string());
        ::chmod(nodes.back().c_str(), 0666);
    }
    EXPECT_EQ("", WordsOfNobody(size_t{1} << 30));
    const std::string little = WordsOfNobody(size_t{64} << 10);
    EXPECT_NE(std::string::npos, little.find("this process may lock 64 KiB")) << little;
    EXPECT_NE(std::string::npos, little.find("limits.conf")) << little;
    for (const std::string& node : nodes) ::chmod(node.c_str(), 0600);
    const std::string denied = WordsOfNobody(size_t{1} << 30);
    EXPECT_NE(std::string::npos, denied.find("no permission for /dev/infiniband/uverbs")) << denied;
}

}  // namespace
}  // namespace weft::net
