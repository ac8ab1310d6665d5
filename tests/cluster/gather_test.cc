// Values that ranks gather over the control connections: each exchange of the program with the
// largest values that it has, among 256 and 4,096 ranks, through the code of the rounds, messages
// and frames; and real control threads with values of many frames.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/control.h"
#include "cluster/gather_rounds.h"
#include "support/limits.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

constexpr int64_t kLongMs = 60'000;

std::string ValueOf(size_t rank, size_t bytes) {
    std::string value = std::to_string(rank) + " ";
    value.resize(bytes, static_cast<char>('a' + rank % 26));
    return value;
}

// The messages of an AllGather between rank 0 and the others, without sockets.
Result<std::vector<std::string>> Gather(const std::vector<std::string>& values) {
    GatherRounds rounds("test");
    const auto round = [&](const auto& mine, auto answer) -> Result<std::string> {
        std::vector<std::string> sent;
        size_t bytes = 0;
        for (const std::string& value : values) {
            WEFT_ASSIGN(const ValueMessage came,
                        Decode<ValueMessage>(Encode(ValueMessage{1, "t", mine(value)})));
            sent.push_back(came.value);
            bytes += came.value.size();
        }
        EXPECT_LE(bytes, kMostMessage);
        WEFT_ASSIGN(const std::string packed, answer(sent));
        const Bytes message = Encode(ResultMessage{1, packed});
        EXPECT_LE(message.size(), kMostMessage);
        WEFT_ASSIGN(const ResultMessage result, Decode<ResultMessage>(message));
        return result.value;
    };
    WEFT_ASSIGN(std::string packed, round(GatherRounds::HeadOf,
                                          [&](const auto& heads) { return rounds.Heads(heads); }));
    if (packed == GatherRounds::kRestFollows) {
        const auto rest = [](const std::string& value) {
            return GatherRounds::IsLong(value) ? value : std::string();
        };
        WEFT_ASSIGN(packed, round(rest, [&](const auto& rests) { return rounds.Rests(rests); }));
    }
    return rounds.ValuesOf(packed, values.size());
}

// The exchanges whose values grow with the model, the hosts or the ranks.
struct Exchange {
    const char* name;
    size_t bytes;     // largest value of a rank
    size_t speakers;  // ranks with such a value; 0: all
};
constexpr Exchange kExchanges[] = {
    {"weights", 70, 0},
    {"holdings", 90'000, 128},  // of LoRA on 80 layers: one for each stage and tensor rank
    {"report", 4'000, 0},
    {"self-test ops", 17 * 900, 0},  // 900 whole values in a stage
    {"self-test record", 4'000'000, 1},
    {"host", 6'000, 0},  // 768 threads and 16 addresses
    {"ready", 2 * 4096 + 2000, 0},
    {"ways", 64 * 4096 * 40, 1},
    {"model header", 16 << 20, 1},
    {"seconds of ops", 8'000, 0},
    {"digests of model files", 17 * 500, 0},
    {"stopped", 500, 0},
};

TEST(Gather, EachExchangeOfTheProgramAmongManyRanks) {
    for (const size_t ranks : {size_t{2}, size_t{256}, size_t{4096}}) {
        for (const Exchange& exchange : kExchanges) {
            std::vector<std::string> values(ranks);
            for (size_t rank = 0; rank < ranks; ++rank) {
                const bool speaks = exchange.speakers == 0 || rank < exchange.speakers;
                if (speaks) values[rank] = ValueOf(rank, exchange.bytes);
            }
            const auto all = Gather(values);
            ASSERT_TRUE(all.ok()) << exchange.name << " among " << ranks << ": "
                                  << all.error().message;
            EXPECT_TRUE(*all == values) << exchange.name << " among " << ranks;
        }
    }
}

TEST(Gather, LongAndShortValuesComeBackInOrder) {
    const std::vector<std::string> values = {"",
                                             ValueOf(1, GatherRounds::kMostShort),
                                             ValueOf(2, GatherRounds::kMostShort + 1),
                                             "",
                                             std::string("\0s", 2),
                                             ValueOf(1, GatherRounds::kMostShort),
                                             "s9",
                                             std::string(5 << 20, 'x')};
    const auto all = Gather(values);
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_TRUE(*all == values);
}

// Each rank gets the same error, before the values travel.
TEST(Gather, TooManyBytesAreAnErrorOnEachRank) {
    for (const auto& [ranks, bytes] : {std::pair{size_t{256}, kMostGathered / 256 + 1},
                                       {size_t{2}, kMostGathered},
                                       {size_t{4096}, size_t{20'000}}}) {
        const auto all = Gather(std::vector<std::string>(ranks, std::string(bytes, 'x')));
        ASSERT_FALSE(all.ok());
        EXPECT_EQ(all.error().code, ErrorCode::kUnsupported) << all.error().message;
        EXPECT_NE(all.error().message.find(std::to_string(ranks * bytes)), std::string::npos)
            << all.error().message;
    }
    EXPECT_TRUE(Gather(std::vector<std::string>(256, std::string(kMostGathered / 256, 'x'))).ok());
    const auto one = Gather({"", std::string(kMostGathered + 1, 'x')});  // a single long value
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.error().code, ErrorCode::kUnsupported) << one.error().message;
}

TEST(Gather, MalformedHeadsAndRestsAreRefused) {
    for (const char* head : {"", "x", "s", "s-1", "s1x", "s18446744073709551615",
                             "s281474976710657", "s99999999999999999999", "s 1"}) {
        EXPECT_FALSE(GatherRounds("t").Heads({"vfine", head}).ok()) << head;
    }
    GatherRounds rounds("t");
    ASSERT_TRUE(rounds.Heads({"va", "s20000"}).ok());
    const std::string right(20'000, 'x');
    EXPECT_FALSE(rounds.Rests({"", right + "x"}).ok());
    EXPECT_FALSE(rounds.Rests({"", ""}).ok());
    EXPECT_FALSE(rounds.Rests({""}).ok());
    EXPECT_FALSE(rounds.Rests({right, right}).ok());
    ASSERT_TRUE(rounds.Heads({"va", "s20000"}).ok());
    EXPECT_TRUE(rounds.Rests({"", right}).ok());
    for (const char* answer : {"", "v", "x", "s", "vabc"}) {
        EXPECT_FALSE(GatherRounds("t").ValuesOf(answer, 1).ok()) << answer;
    }
}

// Equal values are stored once, but a short list of many copies of a long value is refused.
TEST(Gather, EqualValuesTravelOnce) {
    const std::vector<std::string> same(4096, std::string(10'000, 'x'));
    const std::string packed = PackValues(same);
    EXPECT_LT(packed.size(), 30'000u);
    const auto back = UnpackValues(packed);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, same);
    const std::vector<std::string> bomb(4096, std::string(20'000, 'x'));
    EXPECT_FALSE(UnpackValues(PackValues(bomb)).ok());
    EXPECT_FALSE(UnpackValues(PackValues(std::vector<std::string>(kMostRanks + 1))).ok());
    for (size_t size = 0; size < 40; ++size) {
        EXPECT_FALSE(
            UnpackValues(PackValues({"abc", "abc", std::string(40, 'y')}).substr(0, size)).ok());
    }
}

// ---- Channels and control threads -------------------------------------------------------------

struct Ends {
    std::unique_ptr<Channel> a, b;
};

Ends Connected() {
    auto ends = MakeSocketPair();
    WEFT_CHECK(ends.ok());
    const auto sessions = MakeSessionPair(5000);
    return {std::make_unique<Channel>(std::move(ends->first), sessions.first),
            std::make_unique<Channel>(std::move(ends->second), sessions.second)};
}

struct Got {
    FrameType type;
    size_t bytes;
    bool operator==(const Got&) const = default;
};

// Sends and receives until `count` messages are there.
std::vector<Got> Pass(Channel& from, Channel& to, size_t count) {
    std::vector<Got> got;
    test::Until(
        [&] {
            from.Flush();
            EXPECT_TRUE(to.Receive([&](FrameType type, View payload) {
                              got.push_back({type, payload.size()});
                          }).ok());
            return got.size() >= count;
        },
        Deadline::In(kLongMs));
    return got;
}

// A heartbeat passes between the parts of a long message; the others keep their order.
TEST(Channel, LongMessagesArriveWholeAndInOrder) {
    Ends ends = Connected();
    const Bytes long_one(5 << 20, std::byte{7});
    ends.a->Send(FrameType::kValue, long_one);
    ends.a->Send(FrameType::kEnd, {});
    ends.a->Send(FrameType::kHeartbeat, Bytes(20));
    ends.a->SendShared(FrameType::kResult, std::make_shared<const Bytes>(3 << 20));
    ends.a->Send(FrameType::kReady, Bytes(3));
    const std::vector<Got> got = Pass(*ends.a, *ends.b, 5);
    EXPECT_EQ(got, (std::vector<Got>{{FrameType::kHeartbeat, 20},
                                     {FrameType::kValue, 5 << 20},
                                     {FrameType::kEnd, 0},
                                     {FrameType::kResult, 3 << 20},
                                     {FrameType::kReady, 3}}));
    EXPECT_TRUE(ends.a->TakeMoved().out);
    EXPECT_TRUE(ends.b->TakeMoved().in);
}

// Frames of a peer with the key that follows no rule.
TEST(Channel, ImpossiblePartsEndTheConnection) {
    using Parts = std::vector<std::pair<FrameType, bool>>;  // type, more
    const auto refuses = [](const Parts& parts, size_t bytes) {
        auto ends = MakeSocketPair();
        auto sessions = MakeSessionPair(5000);
        Channel channel(std::move(ends->second), sessions.second);
        Bytes out;
        for (const auto& [type, more] : parts) {
            SealFrame(sessions.first, out, type, Bytes(bytes), more);
        }
        std::thread writer([&, fd = ends->first.get()] {
            net::SetBlocking(fd, true);
            for (size_t at = 0; at < out.size();) {
                const ssize_t put = ::send(fd, out.data() + at, out.size() - at, MSG_NOSIGNAL);
                if (put <= 0) return;
                at += static_cast<size_t>(put);
            }
        });
        Status status;
        size_t messages = 0;
        test::Until(
            [&] {
                status = channel.Receive([&](FrameType, View) { ++messages; });
                return !status.ok() || messages > 0;
            },
            Deadline::In(kLongMs));
        channel.Close(true);
        writer.join();
        return !status.ok() && status.error().code == ErrorCode::kCorrupt;
    };
    EXPECT_TRUE(refuses({{FrameType::kValue, true}, {FrameType::kResult, false}}, 9));
    EXPECT_TRUE(refuses({{FrameType::kValue, true}, {FrameType::kReady, true}}, 9));
    EXPECT_TRUE(refuses({{FrameType::kValue, true}, {FrameType::kValue, true}}, 0));
    EXPECT_FALSE(refuses({{FrameType::kValue, true}, {FrameType::kValue, false}}, 9));
    const size_t frame = 1'000'000;
    EXPECT_TRUE(refuses(Parts(kMostMessage / frame + 1, {FrameType::kValue, true}), frame));
}

// Control threads of one process.
class Controls {
  public:
    explicit Controls(int ranks, int64_t timeout_ms = 5000) {
        Control::Options options;
        options.timeout_ms = timeout_ms;
        options.watchdog_ms = 0;
        std::vector<std::string> hosts(static_cast<size_t>(ranks), "h");
        all_.push_back(std::make_unique<Control>(options));
        options.rank = -1;
        for (int rank = 1; rank < ranks; ++rank) {
            auto ends = MakeSocketPair();
            const auto sessions = MakeSessionPair(timeout_ms);
            all_[0]->AddPeer(rank, std::move(ends->first), sessions.first, 0);
            all_.push_back(std::make_unique<Control>(options));
            all_.back()->AddPeer(0, std::move(ends->second), sessions.second, 0);
        }
        all_[0]->SetHosts(hosts);
        for (auto& control : all_) WEFT_CHECK(control->Start().ok());
        AssignMessage assignment;
        assignment.hosts = hosts;
        all_[0]->Assign(assignment);
        for (int rank = 1; rank < ranks; ++rank) {
            const auto assigned = at(rank).WaitForAssignment(Deadline::In(kLongMs));
            WEFT_CHECK(assigned.ok() && assigned->rank == rank && assigned->hosts == hosts);
        }
    }
    // The workers end before rank 0.
    ~Controls() {
        while (all_.size() > 1) all_.pop_back();
    }
    Control& at(int rank) { return *all_[static_cast<size_t>(rank)]; }
    int size() const { return static_cast<int>(all_.size()); }
    // Calls work(rank) of all ranks at once.
    template <typename Work>
    void Run(const Work& work) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { work(rank); });
        for (std::thread& thread : threads) thread.join();
    }

  private:
    std::vector<std::unique_ptr<Control>> all_;
};

TEST(Control, ARoundWithValuesOfManyFrames) {
    Controls controls(8);
    controls.Run([&](int rank) {
        const auto pack = [](const auto& values) -> Result<std::string> {
            return PackValues(values);
        };
        for (int call = 0; call < 2; ++call) {
            const auto packed = controls.at(rank).Round(
                "long", ValueOf(static_cast<size_t>(rank), 3 << 20), pack, Deadline::In(kLongMs));
            ASSERT_TRUE(packed.ok()) << packed.error().message;
            const auto values = UnpackValues(*packed);
            ASSERT_TRUE(values.ok());
            for (size_t other = 0; other < 8; ++other) {
                EXPECT_TRUE((*values)[other] == ValueOf(other, 3 << 20)) << other;
            }
        }
    });
}

TEST(Control, ARoundWithTooManyBytesEndsWithTheirNumber) {
    Controls controls(4);
    controls.Run([&](int rank) {
        const auto pack = [](const auto&) -> Result<std::string> { return std::string(); };
        const auto result = controls.at(rank).Round("long", std::string(20 << 20, 'x'), pack,
                                                    Deadline::In(kLongMs));
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code, ErrorCode::kUnsupported) << result.error().message;
        EXPECT_NE(result.error().message.find("'long': the values of all ranks have 83886080"),
                  std::string::npos)
            << result.error().message;
    });
}

// Rank 2 moves for three times the limit, by `move`. It then arrives; or it stops, and is named one
// limit after its last move, though rank 1, which is here, moves all the time.
void MoveAndMeet(const std::function<void(Control&, std::atomic<int64_t>&)>& move, bool arrives) {
    constexpr int64_t kLimitMs = 1000;
    Controls controls(3);
    std::atomic<int64_t> busy{0}, counted{0}, last_ns{0};
    controls.at(1).SetProgress([&] { return ++busy; });
    controls.at(2).SetProgress([&] { return counted.load(); });
    const auto meet = [&](int rank) {
        const auto nothing = [](const auto&) -> Result<std::string> { return std::string(); };
        return controls.at(rank).Round("loaded", "", nothing, Deadline::In(kLimitMs));
    };
    controls.Run([&](int rank) {
        if (rank == 2) {
            const test::Pace moves(100'000);
            for (int i = 0; i < 30; ++i) {
                moves.Next();
                move(controls.at(2), counted);
            }
            last_ns = NowNs();
            if (arrives) {
                EXPECT_TRUE(meet(2).ok());
            }
            return;
        }
        const auto met = meet(rank);
        EXPECT_EQ(met.ok(), arrives);
        if (met.ok()) return;
        EXPECT_NE(met.error().message.find("by rank 2"), std::string::npos) << met.error().message;
        EXPECT_LT(NowNs() - last_ns, (2 * kLimitMs + test::LimitMs(1000)) * kNsPerMs);
    });
    for (const int rank : {1, 2}) controls.at(rank).SetProgress(nullptr);
}

TEST(Control, ARankThatLoadsIsNotLate) {
    MoveAndMeet([loaded = 0](Control& control, auto&) mutable { control.SetLoaded(++loaded); },
                true);
}

// Rank 0 is late, but moves. The long values then have the whole limit, although rank 1 has waited
// longer than that for their sizes.
TEST(Control, LongValuesOfALateGatherHaveTheirOwnTime) {
    constexpr int64_t kLimitMs = 2000;
    Controls controls(3);
    std::atomic<int64_t> counted{0};
    controls.at(0).SetProgress([&] { return counted.load(); });
    const std::string value(20'000, 'x');
    controls.Run([&](int rank) {
        const auto wait = [&](int64_t ms) {
            const test::Pace pace(100'000);
            for (int64_t i = 0; i < ms / 100; ++i) pace.Next();
        };
        Control& control = controls.at(rank);
        if (rank == 2) {  // the rounds of an AllGather, the second one late
            const auto none = [](const auto&) -> Result<std::string> { return std::string(); };
            const Deadline deadline = Deadline::In(kLongMs);
            EXPECT_TRUE(control.Round("long", GatherRounds::HeadOf(value), none, deadline).ok());
            wait(1000);
            EXPECT_TRUE(control.Round("long", value, none, deadline).ok());
            return;
        }
        if (rank == 0) {
            const test::Pace moves(100'000);
            for (int i = 0; i < 24; ++i) {
                moves.Next();
                ++counted;
            }
        }
        const auto all = control.AllGather("long", value, Deadline::In(kLimitMs));
        EXPECT_TRUE(all.ok()) << rank << ": " << all.error().message;
    });
    controls.at(0).SetProgress(nullptr);
}

TEST(Control, ARankThatStopsMovingIsNamed) {
    MoveAndMeet([](Control&, auto& moves) { ++moves; }, false);
}

}  // namespace
}  // namespace weft::cluster
