// Workers that dial rank 0: their order, leaving again, strangers, and every fault at each moment.
// Either one error names the rank, or the job begins after all. All ranks are on this machine;
// recruits_test covers recovery.
#include "cluster/join/dial_in.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <thread>

#include "base/file.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/gather.h"
#include "cluster/watch/recall.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/sim_time.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::IsGone;
using test::Process;

uint16_t UnusedPort() {
    const Fd fd = net::ListenTcp("127.0.0.1", 0).value();
    return net::BoundPort(fd.get()).value();
}

class DialIns : public ::testing::Test {
  protected:
    void SetUp() override {
        MakeKey("key", "a-shared-key-of-the-tests");
        MakeKey("other", "a-key-of-somebody-else");
    }
    void MakeKey(const std::string& name, const std::string_view key) {
        ASSERT_TRUE(WriteFile(folder_ / name, std::as_bytes(std::span(key))).ok());
        ::chmod((folder_ / name).c_str(), 0600);
    }
    std::unique_ptr<Process> Root(int workers, const support::Words& more) const {
        support::Words words = {CLUSTER_RANK,
                                "launch",
                                fmt::format("wait_for={}", workers),
                                "listen=127.0.0.1:" + std::to_string(port_),
                                fmt::format("timeout={}", timeout_ms_),
                                "key=" + (folder_ / "key")};
        words.insert(words.end(), more.begin(), more.end());
        return std::make_unique<Process>(words);
    }
    std::unique_ptr<Process> Worker(const support::Words& more = {},
                                    const std::string& key = "key") const {
        support::Words words = {CLUSTER_RANK, "join", "127.0.0.1:" + std::to_string(port_),
                                folder_ / key};
        words.insert(words.end(), more.begin(), more.end());
        return std::make_unique<Process>(words);
    }
    static pid_t PidOf(const std::string& output, const std::string& name) {
        const size_t at = output.find(name + " pid ");
        return at == std::string::npos ? 0 : std::atoi(output.c_str() + at + name.size() + 5);
    }

    const uint16_t port_ = UnusedPort();
    const int64_t timeout_ms_ = test::TimeoutMs(1000);
    const Deadline soon_ = Deadline::In(20'000);
    test::TempDir folder_;
};

TEST_F(DialIns, WorkersComeBeforeAndAfterRankZeroAndServeOneJobAfterAnother) {
    const auto early = Worker();
    ASSERT_TRUE(early->ReadUntil("joining", soon_));
    std::unique_ptr<Process> late;
    for (int job = 1; job <= 3; ++job) {
        const auto root = Root(2, {"prefill=2", "steps=5"});
        ASSERT_TRUE(root->ReadUntil("1 of 2 workers have connected: ", Deadline::In(20'000)))
            << root->output();
        // Heartbeats keep the first worker for longer than the timeout.
        if (late == nullptr) test::Outlast(2 * timeout_ms_);
        if (late == nullptr) late = Worker();
        EXPECT_EQ(root->Wait(Deadline::In(20'000)), 0) << root->output();
        EXPECT_NE(root->output().find("2 of 2 workers have connected: "), std::string::npos);
        EXPECT_NE(root->output().find("rank 0 of 3"), std::string::npos) << root->output();
    }
    for (Process* worker : {early.get(), late.get()}) {
        worker->Signal(SIGTERM);
        EXPECT_EQ(worker->Wait(Deadline::In(10'000)), 0) << worker->output();
    }
}

TEST_F(DialIns, AWorkerIsTheRankThatItAsksFor) {
    const auto root = Root(2, {"steps=2"});
    ASSERT_TRUE(root->ReadUntil("workers connect to port", soon_)) << root->output();
    const auto two = Worker({"rank=2", "once=1"});
    ASSERT_TRUE(root->ReadUntil("is rank 2", soon_)) << root->output();
    const auto seven = Worker({"rank=7"});
    ASSERT_TRUE(root->ReadUntil("it asks to be rank 7; workers are ranks 1 to 2", soon_))
        << root->output();
    const auto again = Worker({"rank=2"});  // has to wait
    const auto any = Worker({"once=1"});
    EXPECT_EQ(root->Wait(Deadline::In(20'000)), 0) << root->output();
    EXPECT_EQ(two->Wait(Deadline::In(10'000)), 0);
    EXPECT_EQ(any->Wait(Deadline::In(10'000)), 0);
    ASSERT_TRUE(two->output().find("rank 2 of 3") != std::string::npos) << two->output();
    EXPECT_NE(any->output().find("rank 1 of 3"), std::string::npos) << any->output();
}

TEST_F(DialIns, TimeoutNamesTheNumberOfConnectedWorkers) {
    const auto worker = Worker();
    const auto wrong = Worker({}, "other");
    const auto root = Root(2, {fmt::format("wait={}", test::TimeoutMs(3000))});
    EXPECT_EQ(root->Wait(Deadline::In(20'000)), 1) << root->output();
    EXPECT_NE(root->output().find("1 of 2 workers connected within "), std::string::npos)
        << root->output();
    EXPECT_NE(root->output().find("weft worker --join "), std::string::npos) << root->output();
    EXPECT_NE(root->output().find("its --key-file holds another one"), std::string::npos)
        << root->output();
    EXPECT_TRUE(wrong->ReadUntil("rank 0 was refused: wrong key", soon_)) << wrong->output();
    // The wait reports from time to time which workers are present.
    EXPECT_NE(root->output().find("1 of 2 workers have connected; for "), std::string::npos)
        << root->output();
    // A worker that does not fit a job does not exit.
    EXPECT_FALSE(IsGone(worker->pid()) || IsGone(wrong->pid()));
}

TEST_F(DialIns, AStopEndsTheWaitAtOnce) {
    const auto worker = Worker();
    const auto root = Root(2, {"wait=600000"});
    ASSERT_TRUE(root->ReadUntil("1 of 2 workers have connected: ", soon_)) << root->output();
    const int64_t begin = NowNs();
    root->Signal(SIGINT);
    EXPECT_EQ(root->Wait(Deadline::In(10'000)), 130) << root->output();
    EXPECT_LT(root->end_ns() - begin, test::LimitNs(2000));
    EXPECT_FALSE(IsGone(worker->pid()));
}

// Before the job begins, rank 0 waits for a lost worker to dial again, or for another worker.
TEST_F(DialIns, WorkerLostBeforeTheJobMayDialAgain) {
    for (const int signal : {SIGKILL, SIGSTOP, SIGTERM}) {
        const auto first = Worker();
        const auto root = Root(2, {"steps=3", "wait=120000"});
        ASSERT_TRUE(root->ReadUntil("1 of 2 workers have connected: ", Deadline::In(20'000)))
            << root->output();
        ASSERT_TRUE(first->ReadUntil("a job of ", Deadline::In(20'000))) << first->output();
        first->SignalGroup(signal);
        for (const pid_t child : test::ChildrenOf(first->pid())) ::kill(child, signal);
        ASSERT_TRUE(root->ReadUntil("rank 1 is gone before the job began: ", Deadline::In(20'000)))
            << root->output();
        const auto second = Worker(), third = Worker();
        EXPECT_EQ(root->Wait(Deadline::In(20'000)), 0) << signal << root->output();
    }
}

// In a running job: one error that names the rank, within the timeout plus a second.
TEST_F(DialIns, ALostWorkerEndsTheJobWithOneErrorInEveryPhase) {
    for (const char* phase : {"load", "decode"}) {
        for (const int signal : {SIGKILL, SIGSTOP, SIGTERM}) {
            const auto one = Worker({"rank=1"}), two = Worker({"rank=2"});
            const auto root = Root(
                2, {phase == std::string("load") ? "load=60000" : "load=0", "steps=100000000"});
            ASSERT_TRUE(two->ReadUntil(fmt::format("at {}", phase), Deadline::In(20'000)))
                << two->output() << root->output();
            const pid_t rank = PidOf(two->output(), "rank 2");
            const int64_t begin = NowNs();
            // The worker receives SIGTERM and says goodbye; its rank receives the other signals.
            ::kill(signal == SIGTERM ? two->pid() : rank, signal);
            EXPECT_EQ(root->Wait(Deadline::In(20'000)), 3) << root->output();
            EXPECT_LE(root->end_ns() - begin, (timeout_ms_ + test::LimitMs(1000)) * 1'000'000);
            EXPECT_NE(root->output().find("rank 2 (host "), std::string::npos) << root->output();
            EXPECT_EQ(root->output().find("was lost"), root->output().rfind("was lost"))
                << root->output();
            EXPECT_TRUE(one->ReadUntil("the job ended with status", Deadline::In(20'000)))
                << one->output();
            if (signal != SIGTERM) {
                // The worker itself dials again after its rank's process has ended.
                EXPECT_TRUE(two->ReadUntil("the job", Deadline::In(20'000))) << two->output();
                const auto next = Root(2, {"steps=2"});
                EXPECT_EQ(next->Wait(Deadline::In(20'000)), 0) << next->output() << two->output();
            }
        }
    }
}

TEST_F(DialIns, AWorkerOutlivesARankZeroThatIsKilledOrStoppedAtAnyMoment) {
    const auto worker = Worker();
    size_t turn = 0;
    for (const char* moment :
         {"workers connect to port", "1 of 2 workers have connected: ", "at decode"}) {
        for (const int signal : {SIGKILL, SIGSTOP}) {
            if (!test::InTurn(turn++, 2)) continue;
            const bool waits = moment != std::string("at decode");
            const auto root = Root(waits ? 2 : 1, {"steps=100000000", "wait=600000"});
            ASSERT_TRUE(root->ReadUntil(moment, Deadline::In(20'000))) << root->output();
            root->Signal(signal);
            if (signal == SIGSTOP) {
                test::Outlast(timeout_ms_ * 3 / 2);
                root->Signal(SIGKILL);
            }
            root->Wait(Deadline::In(10'000));
            const auto next = Root(1, {"steps=2"});
            EXPECT_EQ(next->Wait(Deadline::In(30'000)), 0)
                << moment << signal << next->output() << worker->output();
        }
    }
}

TEST_F(DialIns, OnceAndWaitEndAWorker) {
    const auto nobody = Worker({fmt::format("wait={}", test::TimeoutMs(500))});
    EXPECT_EQ(nobody->Wait(Deadline::In(20'000)), 1);
    EXPECT_NE(nobody->output().find("had no job within "), std::string::npos) << nobody->output();
    // A worker does not wait any longer for a job that has no place for it.
    {
        const auto first = Worker();
        const auto runs = Root(1, {"steps=100000000"});
        ASSERT_TRUE(runs->ReadUntil("at decode", soon_)) << runs->output();
        const auto spare = Worker({fmt::format("wait={}", test::TimeoutMs(1000))});
        EXPECT_EQ(spare->Wait(Deadline::In(20'000)), 1) << spare->output();
        EXPECT_NE(spare->output().find("had no job within "), std::string::npos) << spare->output();
    }
    // If the job fails, its status is the worker's status.
    const auto once = Worker({"once=1"});
    const auto root = Root(1, {"fail_at=load", "error=1"});
    EXPECT_EQ(root->Wait(Deadline::In(20'000)), 1) << root->output();
    EXPECT_EQ(once->Wait(Deadline::In(20'000)), 1) << once->output();
    const auto denied = Worker({"once=1"}, "other");
    const auto other = Root(1, {"wait=600000"});
    EXPECT_EQ(denied->Wait(Deadline::In(20'000)), 1) << denied->output();
}

// ---- The listening side ------------------------------------------------------------------------

Bytes DoorKey() {
    const std::string_view text = "the right key of this test";
    const auto bytes = std::as_bytes(std::span(text));
    return Bytes(bytes.begin(), bytes.end());
}

Result<Arrival> KnockAs(uint16_t port, int rank) {
    auto fd = net::DialTcp("127.0.0.1", port, Deadline::In(5000));
    if (!fd.ok()) return fd.error();
    return ProveRank(std::move(*fd), rank, 0, DoorKey(), Deadline::In(10'000));
}

std::optional<Arrival> NextOf(DialIn& dial_in, const std::vector<int>& places) {
    std::optional<Arrival> arrival;
    test::Until([&] { return (arrival = dial_in.Next(places)).has_value(); });
    return arrival;
}

TEST(DialInTest, KeepsWorkersInOrderAndDropsLostOnes) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 3).value();
    EXPECT_FALSE(dial_in->Next({1, 2, 3}).has_value());
    auto leaves = KnockAs(dial_in->port(), 0);
    auto third = KnockAs(dial_in->port(), 3), any = KnockAs(dial_in->port(), 0);
    ASSERT_TRUE(leaves.ok() && third.ok() && any.ok());
    // Rank 3 counts while two others could be ranks 1 and 2.
    const auto wait_for = [&](int count) {
        return test::Until([&] { return dial_in->PendingJoiners(1) == count; });
    };
    ASSERT_TRUE(wait_for(3));
    leaves = MakeError(ErrorCode::kIo, "gone");
    ASSERT_TRUE(wait_for(1));
    // The worker that requested rank 3 remains for it; of the others, the first one still connected
    // is taken.
    const auto two = NextOf(*dial_in, {2});
    ASSERT_TRUE(two.has_value());
    EXPECT_EQ(two->rank, 2);
    EXPECT_FALSE(dial_in->Next({1, 2}).has_value());
    const auto three = NextOf(*dial_in, {1, 3});
    ASSERT_TRUE(three.has_value());
    EXPECT_EQ(three->rank, 3);
    EXPECT_FALSE(dial_in->Next({1, 2, 3}).has_value());
}

// A worker that answers questions and sends heartbeats.
class Answering {
  public:
    using Answer = std::function<void(Channel&, const ExamineMessage&)>;
    explicit Answering(Arrival arrival, Answer answer = Fit)
        : channel_(ChannelOf(std::move(arrival))), answer_(std::move(answer)), thread_([this] {
              while (!ends_.load()) Turn();
          }) {}
    ~Answering() {
        ends_.store(true);
        thread_.join();
    }
    static void Fit(Channel& channel, const ExamineMessage& request) {
        channel.Send(FrameType::kExamined, Encode(ExaminedMessage{request.number, true}));
    }
    int asked() const { return asked_.load(); }
    int turns() const { return turns_.load(); }

  private:
    void Turn() {
        ++turns_;
        test::Readable(channel_.fd(), Deadline::In(5));  // and then a heartbeat
        const Status heard = channel_.Receive([&](FrameType type, View payload) {
            if (type != FrameType::kExamine) return;
            const auto request = Decode<ExamineMessage>(payload);
            ASSERT_TRUE(request.ok());
            ++asked_;
            answer_(channel_, *request);
        });
        // (A peer that sends data before it is asked is not a worker.)
        if (heard.ok() && asked_.load() == 0) return;
        if (heard.ok()) {
            channel_.Send(FrameType::kHeartbeat, Encode(HeartbeatMessage{}));
        } else {
            ends_.store(true);
        }
    }

    Channel channel_;
    Answer answer_;
    std::atomic<bool> ends_{false};
    std::atomic<int> asked_{0}, turns_{0};
    std::thread thread_;
};

bool IsVetted(DialIn& dial_in, int size, int count, const std::string& job = "job") {
    return test::Until([&] {
        return dial_in.ValidateJoiners(size, count, {1, size + count, job, "terms"});
    });
}

// The only worker leaves, and is never accepted.
bool LeavesUnfit(DialIn& dial_in) {
    return test::Until([&] {
        EXPECT_FALSE(dial_in.ValidateJoiners(2, 1, {1, 3, "job", "terms"}));
        return dial_in.PendingJoiners(2) != 1;
    });
}

// Each question is asked once; a new question is asked again.
TEST(DialInTest, AsksAJoiningWorkerWhetherItCanBeTheRank) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 255).value();
    Result<Arrival> one = KnockAs(dial_in->port(), 0), two = KnockAs(dial_in->port(), 0);
    ASSERT_TRUE(one.ok() && two.ok());
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 2; }));
    std::atomic<bool> knows{false};
    const Answering first(std::move(*one));
    const Answering second(std::move(*two), [&](Channel& channel, const ExamineMessage& request) {
        EXPECT_EQ(request.rank, request.size - 1);
        EXPECT_EQ(request.terms, "terms");
        knows = request.job == "larger";
        if (knows) Answering::Fit(channel, request);
    });
    EXPECT_TRUE(IsVetted(*dial_in, 2, 1));
    const int before = first.turns();
    ASSERT_TRUE(test::Until([&] {
        EXPECT_FALSE(dial_in->ValidateJoiners(2, 2, {1, 4, "job", "terms"}));
        return first.turns() >= before + 40;
    }));
    EXPECT_TRUE(IsVetted(*dial_in, 2, 2, "larger"));
    EXPECT_TRUE(knows.load());
    EXPECT_EQ(first.asked(), 3);
    EXPECT_EQ(second.asked(), 2);
    // Rank 2 is lost: a worker that fits rank 4 of 4 is asked for rank 2.
    std::optional<Arrival> arrival;
    ASSERT_TRUE(test::Until([&] {
        return (arrival = dial_in->NextFit({2}, {1, 3, "job", "terms"})).has_value();
    }));
    EXPECT_EQ(arrival->rank, 2);
}

// A live worker that does not answer delays the others only briefly; its late answer counts.
TEST(DialInTest, SilentWorkerDoesNotBlockOthers) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 300, 255).value();
    Result<Arrival> one = KnockAs(dial_in->port(), 0), two = KnockAs(dial_in->port(), 0);
    ASSERT_TRUE(one.ok() && two.ok());
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 2; }));
    std::atomic<bool> answers{false};
    std::atomic<int64_t> number{0};
    const Answering slow(std::move(*one), [&](Channel& channel, const ExamineMessage& request) {
        number = request.number;
        if (answers) Answering::Fit(channel, request);
    });
    const Answering quick(std::move(*two));
    EXPECT_FALSE(dial_in->ValidateJoiners(2, 2, {1, 4, "job", "terms"}));
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 1; }));
    EXPECT_EQ(number, 1);
    EXPECT_TRUE(IsVetted(*dial_in, 2, 1));
    EXPECT_EQ(dial_in->Choose(2, 1).size(), 1U);
    ASSERT_EQ(dial_in->TakeChosen(2).size(), 1U);
    // If there is no other candidate, rank 0 asks it again and waits for its answer.
    answers = true;
    EXPECT_TRUE(test::Until([&] {
        return dial_in->NextFit({2}, {2, 4, "other", "terms"}).has_value();
    }));
}

// A worker may take hours to read its copy of the model, but must make progress.
TEST(DialInTest, TheCheckLastsWhileItMakesProgress) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    Channel worker(Fd(ends[0]), {});
    test::Timeline time;
    CandidateCheck check(Channel(Fd(ends[1]), {}), 5000);
    check.Ask({1, 2, "job", "terms"});
    int64_t progress = 0;
    const auto turn = [&](int64_t moves) {
        time.Pass(60'000 * kNsPerMs);
        worker.Send(FrameType::kHeartbeat, Encode(HeartbeatMessage{.progress = progress += moves}));
        check.Turn();
        EXPECT_TRUE(worker.Receive([](FrameType, View) {}).ok());
    };
    for (int minute = 0; minute < 300; ++minute) turn(1);
    EXPECT_FALSE(check.fault().has_value());
    const int64_t last_ns = check.moved_ns();
    EXPECT_EQ(last_ns, NowNs());
    for (int minute = 0; minute < 10; ++minute) turn(0);
    EXPECT_EQ(check.moved_ns(), last_ns);
    EXPECT_FALSE(check.fault().has_value());
    turn(0);
    ASSERT_TRUE(check.fault().has_value());
    EXPECT_EQ(check.fault()->code, ErrorCode::kTimeout);
    EXPECT_TRUE(check.fault()->message.starts_with(
        "it neither read nor computed for 600 s during the check whether it can be rank 1. "))
        << check.fault()->message;
}

TEST(DialInTest, UnsuitableWorkerIsRejected) {
    const std::vector<Answering::Answer> ways = {
        [](Channel& channel, const auto&) { channel.Close(false); },
        [](Channel& channel, const auto&) {
            const std::string_view noise = "GET / HTTP/1.1 and more bytes than a head has";
            ::send(channel.fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
        },
        [](Channel& channel, const auto&) {
            channel.Send(FrameType::kValue, Encode(ValueMessage{1, "host", ""}));
        },
        [](Channel& channel, const auto& request) {
            channel.Send(FrameType::kExamined, Encode(ExaminedMessage{request.number + 1, true}));
        },
        [](Channel& channel, const auto&) {
            channel.Send(FrameType::kExamined, Encode(ReadyMessage{1}));
        },
        [](Channel& channel, const auto& request) {
            const std::string why = "no room\x1b[2J";
            channel.Send(FrameType::kExamined,
                         Encode(ExaminedMessage{request.number, false, ErrorCode::kIo, why}));
        },
        [](Channel& channel, const auto&) {
            channel.Send(FrameType::kFailure,
                         Encode(VerdictMessage{ErrorCode::kCancelled, -1, "it ends", ""}));
        }};
    for (size_t i = 0; i < ways.size(); ++i) {
        SCOPED_TRACE(i);
        const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 255).value();
        auto knocked = KnockAs(dial_in->port(), 0);
        ASSERT_TRUE(knocked.ok());
        ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 1; }));
        const Answering worker(std::move(*knocked), ways[i]);
        testing::internal::CaptureStderr();
        ASSERT_TRUE(LeavesUnfit(*dial_in));
        const std::string log = testing::internal::GetCapturedStderr();
        EXPECT_EQ(dial_in->PendingJoiners(2), 0);
        EXPECT_TRUE(dial_in->Choose(2, 1).empty());
        EXPECT_NE(log.find(") can't join: "), std::string::npos) << log;
        EXPECT_EQ(log.find('\x1b'), std::string::npos) << log;
    }
}

// A worker that never answers is dropped after its timeout, not after ten minutes.
TEST(DialInTest, SilentWorkerIsDroppedAfterItsTimeout) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 300, 255).value();
    const auto knocked = KnockAs(dial_in->port(), 0);
    ASSERT_TRUE(knocked.ok());
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 1; }));
    const int64_t begin_ns = NowNs();
    ASSERT_TRUE(LeavesUnfit(*dial_in));
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(3000));
}

// A worker that cannot be a rank of this job gets the reason after it has proved the key.
TEST(DialInTest, UnknownRankIsRejectedWithAReason) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 2).value();
    auto knocked = KnockAs(dial_in->port(), 3);
    ASSERT_TRUE(knocked.ok()) << knocked.error().message;
    Channel channel = ChannelOf(std::move(*knocked));
    std::string why;
    while (why.empty() && test::Readable(channel.fd())) {
        const Status heard = channel.Receive([&](FrameType type, View payload) {
            const auto verdict = Decode<VerdictMessage>(payload);
            if (type == FrameType::kVerdict && verdict.ok()) why = verdict->text;
        });
        if (!heard.ok()) break;
    }
    EXPECT_NE(why.find("it asks to be rank 3; workers are ranks 1 to 2"), std::string::npos) << why;
}

TEST(DialInTest, CountsJoinersAndNamesRejectedOnes) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 255).value();
    EXPECT_EQ(dial_in->PendingJoiners(2), 0);
    auto any = KnockAs(dial_in->port(), 0), three = KnockAs(dial_in->port(), 3),
         one = KnockAs(dial_in->port(), 1), five = KnockAs(dial_in->port(), 5);
    ASSERT_TRUE(any.ok() && three.ok() && one.ok() && five.ok());
    // Ranks 2 and 3: rank 1 has its process, and there is no rank 5 without a rank 4.
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(2) == 2; }));
    EXPECT_EQ(dial_in->PendingJoiners(2), 2);
    EXPECT_EQ(dial_in->PendingJoiners(5), 2);
    EXPECT_EQ(dial_in->PendingJoiners(kMostRanks), 0);
    EXPECT_EQ(dial_in->RejectJoiners(4).size(), 2u);
    EXPECT_EQ(dial_in->PendingJoiners(4), 0);
    EXPECT_EQ(dial_in->PendingJoiners(2), 2);
    // A worker joins only after it has answered that it can.
    EXPECT_TRUE(dial_in->Choose(2, 1).empty());
    const Answering worker(std::move(*any));
    EXPECT_TRUE(IsVetted(*dial_in, 2, 1));
    EXPECT_EQ(dial_in->Choose(2, 2).size(), 1u);
    const auto taken = dial_in->TakeChosen(2);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].rank, 2);
    EXPECT_TRUE(taken[0].fd.valid());
    EXPECT_EQ(dial_in->PendingJoiners(3), 1);
    // A worker whose host has a fault is deferred until it is forgiven; it may still replace a lost
    // rank.
    dial_in->Defer(taken[0]);
    EXPECT_EQ(dial_in->PendingJoiners(3), 0);
    dial_in->Forgive(taken[0]);
    EXPECT_EQ(dial_in->PendingJoiners(3), 1);
    dial_in->Defer(taken[0]);
    EXPECT_TRUE(dial_in->Next({1}).has_value());
}

// A running job counts its joiners before each step.
TEST(DialInTest, ThousandsOfJoinersAreCountedAtOnce) {
    constexpr int kJoiners = 2500;
    AllowDescriptors(kJoiners);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * kJoiners + 100) GTEST_SKIP() << "needs more descriptors (ulimit -n)";
    const auto dial_in = DialIn::ForHosts(600'000).value();
    std::vector<Fd> workers;
    for (int i = 0; i < kJoiners; ++i) {
        auto ends = MakeSocketPair().value();
        workers.push_back(std::move(ends.second));
        Arrival arrival;
        arrival.fd = std::move(ends.first);
        arrival.host = fmt::format("h{}", i);
        dial_in->Add(std::move(arrival));
    }
    ASSERT_TRUE(test::Until([&] { return dial_in->PendingJoiners(512) == kJoiners; }));
    const int64_t begin_ns = NowNs();
    for (int step = 0; step < 10; ++step) EXPECT_EQ(dial_in->PendingJoiners(512), kJoiners);
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(100));
    dial_in->SendAllAway("the test ends");
}

// Half a replica is sent away. Once the other half answers, both are called: neither has another
// reason to come.
TEST_F(DialIns, HostsThatWereSentAwayAreCalledWithTheNextThatAnswers) {
    const auto listen = [&](int port) {
        return std::make_unique<support::Weft>(support::Words{"worker", "--listen",
                                                              fmt::format("127.0.0.1:{}", port),
                                                              "--key-file", folder_ / "door"});
    };
    const Bytes key = DoorKey();
    ASSERT_TRUE(WriteFile(folder_ / "door", key).ok());
    ::chmod((folder_ / "door").c_str(), 0600);
    const auto first = listen(0);
    const uint16_t port = UnusedPort();
    const std::vector<NamedHost> hosts = {
        {"b", "", fmt::format("127.0.0.1:{}", test::PortOf(*first))},
        {"c", "", fmt::format("127.0.0.1:{}", port)}};
    const auto dial_in = DialIn::ForHosts(10'000).value();
    HostRecall recall(*dial_in,
                      {.key = key, .timeout_ms = 10'000, .ways = [](const NamedHost& host) {
                           return std::vector<std::string>{host.address};
                       }});
    ASSERT_TRUE(recall.Start().ok());
    recall.Call(hosts, {"a"});
    const auto joiners = [&] { return recall.gathers() ? 0 : dial_in->PendingJoiners(2); };
    ASSERT_TRUE(test::Until([&] { return joiners() == 1; })) << first->Err();
    EXPECT_EQ(dial_in->RejectJoiners(2).size(), 1u);
    recall.Rest(dial_in->SendAllAway("two ranks make a replica"));
    ASSERT_TRUE(test::Reports(*first, "two ranks make a replica")) << first->Err();
    const auto second = listen(port);
    EXPECT_TRUE(test::Until([&] { return joiners() == 2; })) << first->Err() << second->Err();
    dial_in->SendAllAway("the test ends");
}

// A registry for waits that end before any worker arrives.
class Nobody : public RankRegistry {
  public:
    void Take(Arrival /*arrival*/) override {}
    void Release(int, const std::string&) override {}
    std::vector<Gone> TakeGone() override { return {}; }
    bool Complete() override { return true; }
};

// poll(2) accepts at most as many descriptors as a process may have.
TEST(DialInTest, ADoorThatBreaksEndsTheWaitAtOnce) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer looks at objects through a pipe, and there are no descriptors";
#endif
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 2).value();
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    Nobody nobody;
    const int64_t begin_ns = NowNs();
    const Status gathered = GatherWorkers(*dial_in, 3, nobody, {1000, Deadline::In(60'000)});
    ::setrlimit(RLIMIT_NOFILE, &before);
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kIo);
    EXPECT_NE(gathered.error().message.find("no more workers can connect: "), std::string::npos)
        << gathered.error().message;
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(5000));
}

TEST(DialInTest, CallersWithoutTheKeyNeitherEnterNorBlockWorkers) {
    const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 2).value();
    std::vector<Fd> strangers;
    DialHello lie;
    lie.rank = -1;
    std::array<char, 80> wild;
    wild.fill('\xff');
    for (int i = 0; i < 90; ++i) {
        strangers.push_back(net::DialTcp("127.0.0.1", dial_in->port(), Deadline::In(5000)).value());
        const int fd = strangers.back().get();
        if (i % 5 == 0) ::send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
        if (i % 5 == 1) ::send(fd, &lie, sizeof lie, MSG_NOSIGNAL);
        if (i % 5 == 2) ::send(fd, wild.data(), wild.size(), MSG_NOSIGNAL);
        if (i % 5 == 3) {  // a greeting without a proof
            DialHello hello;
            hello.host.fill('\x1b');
            ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
            ::send(fd, wild.data(), wild.size(), MSG_NOSIGNAL);
        }
    }
    std::optional<Arrival> in;
    std::vector<Result<Arrival>> held;
    for (int attempt = 0; attempt < 20 && !in.has_value(); ++attempt) {
        held.push_back(KnockAs(dial_in->port(), 0));  // (a crowd may push it out once)
        if (held.back().ok()) in = NextOf(*dial_in, {1, 2});
    }
    EXPECT_TRUE(in.has_value());
    EXPECT_FALSE(dial_in->Next({1, 2}).has_value());
}

// An attacker between a worker and rank 0 changes a byte of the data that the worker sends before
// the handshake: its rank, the size, its host's name.
TEST(DialInTest, AHelloThatWasAlteredOnTheWayIsRefused) {
    for (const size_t at : {sizeof(DialHello), size_t{4}, size_t{12}, size_t{16}, size_t{79}}) {
        SCOPED_TRACE(at);
        const auto dial_in = DialIn::Open("127.0.0.1:0", DoorKey(), 1000, 2).value();
        const Fd port = net::ListenTcp("127.0.0.1", 0).value();
        net::SetBlocking(port.get(), true);
        std::thread between([&] {
            const Fd worker = net::Accept(port.get());
            const Fd root = net::DialTcp("127.0.0.1", dial_in->port(), Deadline::In(5000)).value();
            net::SetBlocking(worker.get(), true);
            net::SetBlocking(root.get(), true);
            std::array<std::byte, sizeof(DialHello)> hello{};
            ASSERT_EQ(::recv(worker.get(), hello.data(), hello.size(), MSG_WAITALL),
                      static_cast<ssize_t>(hello.size()));
            if (at < hello.size()) hello[at] ^= std::byte{1};
            ::send(root.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
            pollfd ends[] = {{worker.get(), POLLIN, 0}, {root.get(), POLLIN, 0}};
            while (::poll(ends, 2, 20'000) > 0) {
                for (int i = 0; i < 2; ++i) {
                    std::array<std::byte, 4096> bytes;
                    if (ends[i].revents == 0) continue;
                    const ssize_t got = ::recv(ends[i].fd, bytes.data(), bytes.size(), 0);
                    if (got <= 0) return;
                    ::send(ends[1 - i].fd, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
                }
            }
        });
        {
            const auto knocked = KnockAs(net::BoundPort(port.get()).value(), 0);
            if (at == sizeof(DialHello)) {
                ASSERT_TRUE(knocked.ok()) << knocked.error().message;
                EXPECT_TRUE(NextOf(*dial_in, {1, 2}).has_value());
            } else {
                ASSERT_FALSE(knocked.ok());
                EXPECT_EQ(knocked.error().code, ErrorCode::kDenied);
                EXPECT_NE(knocked.error().message.find("a message was altered on the way"),
                          std::string::npos)
                    << knocked.error().message;
            }
        }
        between.join();
        EXPECT_FALSE(dial_in->Next({1, 2}).has_value());
    }
}

TEST(DialInTest, ANameFromOutsideHasNoControlCharacters) {
    DialHello hello;
    EXPECT_EQ(hello.HostName(), "");
    hello.host = {'n', '\x1b', '[', '\n', ' ', '\x80', '2'};
    EXPECT_EQ(hello.HostName(), "n?[???2");
    hello.host.fill('a');
    EXPECT_EQ(hello.HostName(), std::string(64, 'a'));
}

}  // namespace
}  // namespace weft::cluster
