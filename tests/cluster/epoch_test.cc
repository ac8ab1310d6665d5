// Epochs of the control plane against a simulated peer: messages of a finished epoch are dropped
// and never attributed to the next one.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/control.h"
#include "support/held_up.h"
#include "support/limits.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

constexpr int64_t kEpochTimeoutMs = 5000;
constexpr int64_t kLateMs = 1500;  // of news that Control waits for, and of a silence that it names

AssignMessage Assignment(int rank, int64_t epoch, std::vector<std::string> hosts) {
    AssignMessage message;
    message.rank = rank;
    message.epoch = epoch;
    message.hosts = std::move(hosts);
    message.recover_ms = 10'000;
    return message;
}

// The peer of a control connection.
class FarEnd {
  public:
    FarEnd(Fd fd, const Session& session) : channel_(std::move(fd), session) {}
    void Send(FrameType type, const Bytes& payload) {
        channel_.Send(type, payload);
        test::Until([&] { return !channel_.wants_write() || (channel_.Flush(), false); },
                    Deadline::In(kEpochTimeoutMs));
    }
    void Close() { channel_.Close(false); }
    // The next frame of this type; skips others.
    Bytes Await(FrameType type) {
        const Deadline deadline = Deadline::In(kEpochTimeoutMs);
        while (!deadline.expired()) {
            const Status status = channel_.Receive([&](FrameType got, View payload) {
                frames_.emplace_back(got, Bytes(payload.begin(), payload.end()));
            });
            while (!frames_.empty()) {
                const auto frame = std::move(frames_.front());
                frames_.erase(frames_.begin());
                if (frame.first == type) return frame.second;
            }
            if (!status.ok()) break;
            test::Readable(channel_.fd(), deadline);
        }
        ADD_FAILURE() << "no frame of type " << static_cast<int>(type);
        return {};
    }

  private:
    Channel channel_;
    std::vector<std::pair<FrameType, Bytes>> frames_;
};

struct Pair {
    std::unique_ptr<FarEnd> far;
    Fd near;
    Session session;
};

Pair Connect() {
    auto ends = MakeSocketPair();
    WEFT_CHECK(ends.ok());
    const auto sessions = MakeSessionPair(kEpochTimeoutMs);
    return {std::make_unique<FarEnd>(std::move(ends->second), sessions.second),
            std::move(ends->first), sessions.first};
}

class RootEpoch : public testing::Test {
  protected:
    void SetUp() override {
        Control::Options options;
        options.timeout_ms = kEpochTimeoutMs;
        options.local = false;
        options.recover = true;
        control_ = std::make_unique<Control>(options);
        for (int rank : {1, 2}) {
            Pair pair = Connect();
            control_->AddPeer(rank, std::move(pair.near), pair.session, 0);
            (rank == 1 ? one_ : two_) = std::move(pair.far);
        }
        control_->SetHosts({"a", "b", "c"});
        ASSERT_TRUE(control_->Start().ok());
        control_->Assign(Assignment(0, 1, {"a", "b", "c"}));
        one_->Await(FrameType::kAssign);
    }

    std::unique_ptr<FarEnd> one_, two_;
    std::unique_ptr<Control> control_;
};

// A rank's connection has ended, but its process has not yet. The end of the process, known a
// moment later, is better evidence than other ranks' link errors.
TEST(Ends, AChildThatDiesIsNamedHoweverItsLinksEnded) {
    Control::Options options;
    options.timeout_ms = kEpochTimeoutMs;
    Control control(options);
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    Pair dying = Connect(), other = Connect();
    control.AddPeer(1, std::move(dying.near), dying.session, child);
    control.AddPeer(2, std::move(other.near), other.session, 0);
    control.SetHosts({"a", "b", "c"});
    ASSERT_TRUE(control.Start().ok());
    control.Assign(Assignment(0, 1, {"a", "b", "c"}));
    other.far->Await(FrameType::kAssign);
    const test::Pace moments(20'000);
    dying.far->Close();
    moments.Next();
    const VerdictMessage seen{ErrorCode::kPeerLost, -1, "the data link broke", "", 1, false};
    other.far->Send(FrameType::kFailure, Encode(seen));
    moments.Next();
    ::kill(child, SIGKILL);
    const auto verdict = Decode<VerdictMessage>(other.far->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->lost_rank, 1);
    EXPECT_NE(verdict->reason.find("signal 9"), std::string::npos) << verdict->reason;
    // The main thread learned of its link's end at the same moment.
    const Error told = control.OnTimeout(2, {"recv", 0, 4}, Deadline::In(kEpochTimeoutMs));
    EXPECT_NE(told.message.find("rank 1 (host b) was lost"), std::string::npos) << told.message;
}

// kCancelled would mean that the user stopped the job.
TEST(Ends, ARankThatLeavesWithoutAnErrorIsLost) {
    Control::Options options;
    options.timeout_ms = kEpochTimeoutMs;
    auto control = std::make_unique<Control>(options);
    Pair other = Connect();
    control->AddPeer(1, std::move(other.near), other.session, 0);
    control->SetHosts({"a", "b"});
    ASSERT_TRUE(control->Start().ok());
    control->Assign(Assignment(0, 1, {"a", "b"}));
    other.far->Await(FrameType::kAssign);
    std::thread leaves([&] { control.reset(); });
    const auto verdict = Decode<VerdictMessage>(other.far->Await(FrameType::kVerdict));
    leaves.join();
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->code, ErrorCode::kPeerLost);
}

TEST_F(RootEpoch, IgnoresFramesOfOlderEpochs) {
    two_->Close();
    const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->lost_rank, 2);
    EXPECT_EQ(verdict->epoch, 1);
    EXPECT_TRUE(verdict->recover);
    ASSERT_TRUE(control_->EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
    EXPECT_NE(control_->LossText().find("rank 2 (host c) was lost"), std::string::npos);

    one_->Send(FrameType::kValue, Encode(ValueMessage{1, "sum", "of the old epoch", 1}));
    one_->Send(FrameType::kReady, Encode(ReadyMessage{1}));
    const auto lost = control_->WaitForSurvivors(Deadline::In(kEpochTimeoutMs));
    ASSERT_TRUE(lost.ok());
    EXPECT_EQ(*lost, std::vector<int>{2});
    ASSERT_TRUE(control_->BeginEpoch({0, 1}, Assignment(0, 2, {"a", "b"})));
    const auto next = Decode<AssignMessage>(one_->Await(FrameType::kAssign));
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->epoch, 2);
    EXPECT_EQ(next->rank, 1);
    EXPECT_EQ(next->hosts.size(), 2u);

    one_->Send(FrameType::kReady, Encode(ReadyMessage{1}));
    one_->Send(FrameType::kValue, Encode(ValueMessage{1, "sum", "late", 1}));
    one_->Send(FrameType::kFailure,
               Encode(VerdictMessage{ErrorCode::kIo, -1, "late trouble", "", 1}));
    one_->Send(FrameType::kValue, Encode(ValueMessage{1, "sum", "new", 2}));
    const auto pick = [](const std::vector<std::string>& all) -> Result<std::string> {
        return all[1];
    };
    const auto result = control_->Round("sum", "mine", pick, Deadline::In(kEpochTimeoutMs));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, "new");
    EXPECT_FALSE(control_->Failed());
}

// A rank that does not leave an epoch in time is excluded from the next one and told so.
TEST_F(RootEpoch, DropsRanksThatDoNotLeaveTheEpoch) {
    two_->Close();
    one_->Await(FrameType::kVerdict);
    ASSERT_TRUE(control_->EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
    const auto lost = control_->WaitForSurvivors(Deadline::In(100));
    ASSERT_TRUE(lost.ok());
    EXPECT_EQ(*lost, (std::vector<int>{1, 2}));
    const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->lost_rank, 1);
    EXPECT_FALSE(verdict->recover);
    EXPECT_NE(verdict->text.find("the other ranks continue without it"), std::string::npos);
    EXPECT_FALSE(control_->BeginEpoch({0, 1}, Assignment(0, 2, {"a", "b"})));
}

// A survivor may first have to finish a long op, such as the read of a large weight.
TEST_F(RootEpoch, WaitsForSurvivorsThatMove) {
    two_->Close();
    one_->Await(FrameType::kVerdict);
    ASSERT_TRUE(control_->EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
    std::thread slow([&] {
        const test::Pace beats(25'000);
        HeartbeatMessage beat;
        for (beat.progress = 1; beat.progress <= 60; ++beat.progress) {
            one_->Send(FrameType::kHeartbeat, Encode(beat));
            beats.Next();
        }
        one_->Send(FrameType::kReady, Encode(ReadyMessage{1}));
    });
    const auto lost = control_->WaitForSurvivors(Deadline::In(500));
    slow.join();
    ASSERT_TRUE(lost.ok());
    EXPECT_EQ(*lost, std::vector<int>{2});
    EXPECT_TRUE(control_->BeginEpoch({0, 1}, Assignment(0, 2, {"a", "b"})));
}

// A rank that reports the end of the job instead ends it for all.
TEST_F(RootEpoch, IsTheLastWithoutRecovery) {
    two_->Close();
    EXPECT_TRUE(Decode<VerdictMessage>(one_->Await(FrameType::kVerdict))->recover);
    const Error error = control_->ReportFailure({ErrorCode::kPeerLost, "a step failed"});
    EXPECT_NE(error.message.find("The job has ended on all ranks"), std::string::npos);
    EXPECT_FALSE(Decode<VerdictMessage>(one_->Await(FrameType::kVerdict))->recover);
}

// A heartbeat of rank 1: `op` has waited for data of rank 0 for longer than the timeout.
Bytes WaitsForRankZero(const char* op) {
    HeartbeatMessage beat;
    beat.rank_waits.waits = {{0, 3, 12, 0, op, 2 * kEpochTimeoutMs}};
    return Encode(beat);
}

// A broken link ends the epoch, however long the other end has waited, because no rank is stuck.
TEST_F(RootEpoch, EndsAloneWhereALinkBreaks) {
    const Bytes beat = WaitsForRankZero("all_reduce");
    one_->Send(FrameType::kHeartbeat, beat);
    std::atomic<bool> over = false;
    std::thread lives([&] {
        for (const test::Pace beats(50'000); !over; beats.Next()) {
            one_->Send(FrameType::kHeartbeat, beat);
        }
    });
    const net::OpTag tag{"all_reduce", 12, 3};
    const Error error = control_->OnTimeout(1, tag, Deadline::In(kEpochTimeoutMs));
    over = true;
    lives.join();
    EXPECT_NE(error.message.find("the data link broke during all_reduce #12 of step 3"),
              std::string::npos)
        << error.message;
    EXPECT_FALSE(control_->Failed());
    ASSERT_TRUE(control_->EndEpoch(error).ok());
    EXPECT_TRUE(Decode<VerdictMessage>(one_->Await(FrameType::kVerdict))->recover);
}

// A killed process ends its data link and its control connection; the news may be late by the
// latter.
TEST_F(RootEpoch, ALinkThatBreaksWithItsProcessIsALostRank) {
    std::thread dies([&] {
        test::Outlast(kLateMs);
        one_->Close();
    });
    const net::OpTag tag{"all_reduce", 12, 3};
    const Error error = control_->OnTimeout(1, tag, Deadline::In(kEpochTimeoutMs));
    dies.join();
    EXPECT_NE(error.message.find("was lost during all_reduce #12 of step 3: its process ended"),
              std::string::npos)
        << error.message;
    EXPECT_EQ(error.message.find("data link"), std::string::npos) << error.message;
}

// Sent data did not arrive, and new links may work. If only one of two messages was lost, the ranks
// wait in different ops.
TEST_F(RootEpoch, EndsAloneWhereRanksWaitInACircle) {
    for (const char* op : {"all_reduce", "broadcast"}) {
        const bool one_op = std::string(op) == "all_reduce";
        if (!one_op) {  // start again
            TearDown();
            SetUp();
        }
        const net::OpTag tag{"all_reduce", 12, 3};
        control_->OnLongWait(1, tag);
        control_->OnStillWaiting(2 * kEpochTimeoutMs);
        one_->Send(FrameType::kHeartbeat, WaitsForRankZero(op));
        const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
        ASSERT_TRUE(verdict.ok());
        EXPECT_TRUE(verdict->recover) << verdict->text;
        EXPECT_NE(verdict->text.find("rank 1 (host b) waits for rank 0 in "), std::string::npos)
            << verdict->text;
        EXPECT_EQ(verdict->text.find("Do all ranks have the same data") == std::string::npos,
                  one_op)
            << verdict->text;
        EXPECT_NE(verdict->text.find("is the data link between the hosts down?"), std::string::npos)
            << verdict->text;
        EXPECT_TRUE(control_->EndEpoch(control_->FailureDuring(tag)).ok());
    }
}

// If no rank progresses although all processes live, the others may continue without the guilty
// one.
TEST_F(RootEpoch, EndsAloneWhereAWaitRanOut) {
    for (const bool silent : {false, true}) {
        if (silent) {  // start again
            TearDown();
            SetUp();
            test::Outlast(kLateMs);
        } else {
            two_->Send(FrameType::kHeartbeat, Encode(HeartbeatMessage{}));
        }
        HeartbeatMessage beat;
        beat.rank_waits.waits = {{2, 3, 12, 0, "all_reduce", kEpochTimeoutMs - 1}};
        beat.stalled_ms = kEpochTimeoutMs;
        one_->Send(FrameType::kHeartbeat, Encode(beat));
        const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
        ASSERT_TRUE(verdict.ok());
        EXPECT_TRUE(verdict->recover) << verdict->text;
        EXPECT_TRUE(verdict->text.starts_with("rank 2 (host c): ")) << verdict->text;
        const char* words = silent ? "this rank sent nothing for a while" : "its process answers";
        EXPECT_NE(verdict->text.find(words), std::string::npos) << verdict->text;
        EXPECT_TRUE(control_->EndEpoch({ErrorCode::kPeerLost, verdict->text}).ok());
    }
}

// A live rank does not reach a collective call: the others may continue without it.
TEST_F(RootEpoch, EndsAloneWhereACallIsNotReached) {
    two_->Send(FrameType::kValue, Encode(ValueMessage{1, "report", "two", 1}));
    const auto none = [](const std::vector<std::string>&) {
        return Result<std::string>(std::string());
    };
    const auto result = control_->Round("report", "mine", none, Deadline::In(300));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "'report' was not reached within 300 ms by rank 1 (host b)");
    EXPECT_TRUE(Decode<VerdictMessage>(one_->Await(FrameType::kVerdict))->recover);
}

// A rank that computes for longer than a call waits is slow, not missing.
TEST_F(RootEpoch, WaitsInACallForRanksThatMove) {
    two_->Send(FrameType::kValue, Encode(ValueMessage{1, "report", "two", 1}));
    std::thread slow([&] {
        const test::Pace beats(25'000);
        HeartbeatMessage beat;
        for (beat.progress = 1; beat.progress <= 60; ++beat.progress) {
            one_->Send(FrameType::kHeartbeat, Encode(beat));
            beats.Next();
        }
        one_->Send(FrameType::kValue, Encode(ValueMessage{1, "report", "one", 1}));
    });
    const auto join = [](const std::vector<std::string>& all) -> Result<std::string> {
        return all[1] + all[2];
    };
    const auto result = control_->Round("report", "mine", join, Deadline::In(500));
    slow.join();
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, "onetwo");
}

// Until all ranks of an epoch with newcomers are ready, any fault ends only that epoch.
TEST_F(RootEpoch, OfATrialNothingEndsTheJob) {
    two_->Close();
    one_->Await(FrameType::kVerdict);
    ASSERT_TRUE(control_->EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
    one_->Send(FrameType::kReady, Encode(ReadyMessage{1}));
    ASSERT_EQ(*control_->WaitForSurvivors(Deadline::In(kEpochTimeoutMs)), std::vector<int>{2});
    Pair three = Connect();
    control_->AddNewcomer({std::move(three.near), three.session, "d", 3});
    ASSERT_TRUE(control_->BeginEpoch({0, 1, 3}, Assignment(0, 2, {"a", "b", "d"})));
    three.far->Await(FrameType::kAssign);
    // The newcomer is in another op than rank 0, which waits for it.
    const net::OpTag tag{"all_reduce", 12, 3};
    control_->OnLongWait(2, tag);
    control_->OnStillWaiting(2 * kEpochTimeoutMs);
    three.far->Send(FrameType::kHeartbeat, WaitsForRankZero("broadcast"));
    const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_TRUE(verdict->recover) << verdict->text;
    EXPECT_TRUE(control_->EndEpoch(control_->FailureDuring(tag)).ok());
}

// A hostile report of the maximum frame length.
Bytes LongReport() {
    Bytes report = Encode(VerdictMessage{ErrorCode::kIo, -1, "", ""});
    const std::string text(kMostAfterAuth - 256, 'x');
    Bytes head(report.begin(), report.begin() + 5);  // the code, the rank
    for (int i = 0; i < 4; ++i) {
        head.push_back(static_cast<std::byte>(text.size() >> (8 * i)));
    }
    const auto* const letters = reinterpret_cast<const std::byte*>(text.data());
    head.insert(head.end(), letters, letters + text.size());
    head.insert(head.end(), report.begin() + 9, report.end());
    return head;
}

// Its text is forwarded to all ranks with words before it.
TEST_F(RootEpoch, ReportsPartOfAFrame) {
    one_->Send(FrameType::kFailure, LongReport());
    const auto verdict = Decode<VerdictMessage>(two_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_TRUE(verdict->text.starts_with("rank 1 (host b): xxx")) << verdict->text.substr(0, 64);
    EXPECT_EQ(verdict->text.size(), kMostVerdictText);
}

// The same for values that differ.
TEST_F(RootEpoch, AnErrorOfACallIsNoLongerThanAFrame) {
    const std::string value(kMostAfterAuth - 256, 'x');
    for (FarEnd* far : {one_.get(), two_.get()}) {
        far->Send(FrameType::kValue, Encode(ValueMessage{1, "same", value, 1}));
    }
    const auto differ = [](const std::vector<std::string>& all) -> Result<std::string> {
        return MakeError(ErrorCode::kDenied, "'{}' and '{}' differ", all[0], all[1]);
    };
    EXPECT_FALSE(control_->Round("same", "mine", differ, Deadline::In(kEpochTimeoutMs)).ok());
    const auto verdict = Decode<VerdictMessage>(one_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_TRUE(verdict->text.starts_with("'mine' and 'xxx")) << verdict->text.substr(0, 64);
}

// A goodbye before rank 0 has ended the job does not count: a rank that sends it and leaves is
// lost.
TEST_F(RootEpoch, AGoodbyeBeforeTheEndIsNone) {
    one_->Send(FrameType::kEndAck, {});
    const auto verdict = Decode<VerdictMessage>(two_->Await(FrameType::kVerdict));
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->lost_rank, 1);
    EXPECT_NE(verdict->reason.find("out of turn"), std::string::npos) << verdict->reason;
}

// A message that arrives a byte at a time is no sign of life. A message that arrives in kilobytes
// on a slow network is.
TEST(Control, AFewBytesAreNoSignOfLife) {
    constexpr int64_t kShortMs = 400;
    for (const size_t bytes : {size_t{1}, Channel::kHeadway}) {
        auto ends = MakeSocketPair().value();
        const auto sessions = MakeSessionPair(kShortMs);
        Control::Options options;
        options.timeout_ms = kShortMs;
        options.local = false;
        Control control(options);
        control.AddPeer(1, std::move(ends.first), sessions.first, 0);
        control.SetHosts({"a", "b"});
        ASSERT_TRUE(control.Start().ok());
        const int64_t begin_ns = NowNs();
        std::vector<std::byte> part(bytes, std::byte{8});
        const uint32_t length = kMostAfterAuth / 2;
        ASSERT_EQ(::write(ends.second.get(), &length, sizeof length), 4);
        const test::Pace parts(40'000);
        while (!control.Failed() && SecondsSince(begin_ns) < 3) {
            const ssize_t put = ::send(ends.second.get(), part.data(), part.size(), MSG_NOSIGNAL);
            if (put <= 0) break;
            parts.Next();
        }
        const Deadline soon = Deadline::In(bytes == 1 ? kEpochTimeoutMs : 0);
        EXPECT_EQ(test::Until([&] { return control.Failed(); }, soon), bytes == 1);
    }
}

// The control plane of a worker that is rank 2 of three; the test plays rank 0.
struct Worker {
    static Control::Options Options() {
        Control::Options options;
        options.rank = -1;
        options.timeout_ms = kEpochTimeoutMs;
        options.local = false;
        return options;
    }
    bool Start() {
        control.AddPeer(0, std::move(pair.near), pair.session, 0);
        if (!control.Start().ok()) return false;
        pair.far->Send(FrameType::kAssign, Encode(Assignment(2, 1, {"a", "b", "c"})));
        return control.WaitForAssignment(Deadline::In(kEpochTimeoutMs)).ok();
    }
    Pair pair = Connect();
    Control control{Options()};
};

// Rank 0 may be late, too.
TEST(WorkerEpoch, WaitsInACallWhileOthersMove) {
    for (const bool moves : {true, false}) {
        Worker worker;
        ASSERT_TRUE(worker.Start());
        FarEnd& root = *worker.pair.far;
        Control& control = worker.control;
        std::thread slow([&] {
            const test::Pace beats(25'000);
            for (int i = 0; i < 60; ++i) {
                RelayMessage relay;
                relay.ranks = {{moves ? 0 : 60'000, 0}, {60'000, 0}, {60'000, 0}};
                relay.busiest = 0;
                relay.busiest_ms = moves ? 0 : 60'000;
                relay.others_ms = 60'000;
                root.Send(FrameType::kRelay, Encode(relay));
                beats.Next();
            }
            root.Send(FrameType::kResult, Encode(ResultMessage{1, "late", 1}));
        });
        const auto result = control.Round("sum", "mine", nullptr, Deadline::In(200));
        slow.join();
        ASSERT_EQ(result.ok(), moves);
        if (moves) {
            EXPECT_EQ(*result, "late");
        } else {
            EXPECT_EQ(result.error().code, ErrorCode::kTimeout) << result.error().message;
        }
    }
}

// Rank 0 forms the next epoch once the last survivor has left the old one, and waits for it as long
// as it makes progress.
TEST(WorkerEpoch, WaitsForTheNextEpochWhileOthersMove) {
    for (const bool moves : {true, false}) {
        Worker worker;
        ASSERT_TRUE(worker.Start());
        FarEnd& root = *worker.pair.far;
        Control& control = worker.control;
        root.Send(FrameType::kVerdict,
                  Encode(VerdictMessage{ErrorCode::kPeerLost, 1, "rank 1 was lost", "", 1, true}));
        ASSERT_TRUE(control.EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
        control.LeaveEpoch({});
        std::thread slow([&] {
            const test::Pace beats(25'000);
            for (int i = 0; i < 60; ++i) {
                RelayMessage relay;
                relay.ranks = {{moves ? 0 : 60'000, 0}, {60'000, 0}, {60'000, 0}};
                relay.busiest = 0;
                relay.busiest_ms = moves ? 0 : 60'000;
                relay.others_ms = 60'000;
                root.Send(FrameType::kRelay, Encode(relay));
                beats.Next();
            }
            root.Send(FrameType::kAssign, Encode(Assignment(1, 2, {"a", "c"})));
        });
        const auto next = control.WaitForAssignment(Deadline::In(1000));
        slow.join();
        ASSERT_EQ(next.ok(), moves) << (next.ok() ? "" : next.error().message);
        if (moves) {
            EXPECT_EQ(next->epoch, 2);
        } else {
            EXPECT_EQ(next.error().code, ErrorCode::kTimeout) << next.error().message;
        }
    }
}

TEST(WorkerEpoch, IgnoresFramesOfOlderEpochs) {
    Worker worker;
    ASSERT_TRUE(worker.Start());
    FarEnd& root = *worker.pair.far;
    Control& control = worker.control;

    VerdictMessage loss{ErrorCode::kPeerLost, 1, "rank 1 was lost", "killed", 1, true};
    root.Send(FrameType::kVerdict, Encode(loss));
    ASSERT_TRUE(control.EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
    control.LeaveEpoch({});
    const auto ready = Decode<ReadyMessage>(root.Await(FrameType::kReady));
    ASSERT_TRUE(ready.ok());
    EXPECT_EQ(ready->epoch, 1);
    root.Send(FrameType::kVerdict, Encode(loss));  // again
    root.Send(FrameType::kAssign, Encode(Assignment(1, 1, {"a", "b"})));
    root.Send(FrameType::kAssign, Encode(Assignment(1, 2, {"a", "b"})));
    const auto next = control.WaitForAssignment(Deadline::In(kEpochTimeoutMs));
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->epoch, 2);

    loss.recover = false;
    root.Send(FrameType::kVerdict, Encode(loss));
    root.Send(FrameType::kResult, Encode(ResultMessage{1, "late", 1}));
    root.Send(FrameType::kAssign, Encode(Assignment(2, 1, {"a", "b", "c"})));
    std::thread answer([&] {
        for (const int64_t number : {1, 2}) {
            const auto value = Decode<ValueMessage>(root.Await(FrameType::kValue));
            EXPECT_TRUE(value.ok() && value->epoch == 2 && value->number == number);
            root.Send(FrameType::kResult, Encode(ResultMessage{number, "late", 1}));
        }
        root.Send(FrameType::kResult, Encode(ResultMessage{2, "new", 2}));
    });
    const auto none = control.Round("sum", "mine", nullptr, Deadline::In(200));
    EXPECT_FALSE(none.ok()) << "a result of the older epoch: " << *none;
    const auto result = control.Round("sum", "mine", nullptr, Deadline::In(kEpochTimeoutMs));
    answer.join();
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, "new");
    EXPECT_FALSE(control.Failed());
}

// Rank 0 is silent but ready to run on a busy machine: its children wait for a while. Ranks that
// are not its children do not.
TEST(Control, AStarvedParentIsNotLostAtOnce) {
    constexpr int64_t kShortMs = 300;
    for (const bool child : {true, false}) {
        auto ends = MakeSocketPair().value();
        auto sessions = MakeSessionPair(kShortMs);
        Control::Options options;
        options.rank = -1;
        options.timeout_ms = kShortMs;
        options.watchdog_ms = 0;
        options.child = child;
        Control control(options);
        const int64_t begin_ns = NowNs();
        control.AddPeer(0, std::move(ends.second), sessions.second, 0);
        ASSERT_TRUE(control.Start().ok());
        EXPECT_FALSE(control.WaitForAssignment(Deadline::In(60'000)).ok());
        const int64_t took_ms = (NowNs() - begin_ns) / 1'000'000;
        EXPECT_GE(took_ms, child ? 4 * kShortMs : kShortMs);
        EXPECT_LT(took_ms, child ? 30'000 : 4 * kShortMs + 30'000);
    }
}

// Blocks for the lifetime of this process.
void BeHeldUp() {
    test::HoldUpWhile([self = ::getpid()] { test::Until([&] { return ::getppid() != self; }); });
}

// A child that is ready to run, or blocked in the kernel, is not lost at once; a stopped one is.
TEST(Control, AStarvedChildIsNotLostAtOnce) {
    constexpr int64_t kShortMs = 800;
    for (const std::string_view state : {"stopped", "running", "held up"}) {
        const bool stopped = state == "stopped";
        SCOPED_TRACE(state);
        auto ends = MakeSocketPair().value();
        auto sessions = MakeSessionPair(kShortMs);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            ::alarm(60);  // ends with a killed test
            if (state == "held up") BeHeldUp();
            for (std::atomic<int64_t> turns = 0;; turns.fetch_add(1)) continue;
        }
        if (stopped) ::kill(child, SIGSTOP);
        Control::Options options;
        options.timeout_ms = kShortMs;
        options.watchdog_ms = 0;
        Control control(options);
        const int64_t begin_ns = NowNs();
        control.AddPeer(1, std::move(ends.second), sessions.second, child);
        control.SetHosts({"a", "b"});
        ASSERT_TRUE(control.Start().ok());
        const auto pick = [](const std::vector<std::string>& all) -> Result<std::string> {
            return all[1];
        };
        const auto lost = control.Round("sum", "mine", pick, Deadline::In(60'000));
        ASSERT_FALSE(lost.ok());
        const char* why = stopped ? "its process is stopped" : "its process waits for a core";
        EXPECT_NE(lost.error().message.find(why), std::string::npos) << lost.error().message;
        const int64_t took_ms = (NowNs() - begin_ns) / 1'000'000;
        EXPECT_GE(took_ms, stopped ? kShortMs : 4 * kShortMs);
        EXPECT_LT(took_ms, stopped ? test::LimitMs(3 * kShortMs) : 30'000);
    }
}

// A killed process exists until each of its threads has run once more and its memory is free; only
// then its connections close. Here they stay open, because the test holds the other end.
TEST(Control, ADyingChildIsLostAtOnce) {
    constexpr int64_t kLongMs = 60'000;
    auto ends = MakeSocketPair().value();
    auto sessions = MakeSessionPair(kLongMs);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        for (;;) ::pause();
    }
    Control::Options options;
    options.timeout_ms = kLongMs;
    options.watchdog_ms = 0;
    Control control(options);
    control.AddPeer(1, std::move(ends.second), sessions.second, child);
    control.SetHosts({"a", "b"});
    ASSERT_TRUE(control.Start().ok());
    ::kill(child, SIGKILL);
    const int64_t begin_ns = NowNs();
    const auto pick = [](const std::vector<std::string>& all) -> Result<std::string> {
        return all[1];
    };
    const auto lost = control.Round("sum", "mine", pick, Deadline::In(2 * kLongMs));
    ASSERT_FALSE(lost.ok());
    EXPECT_NE(lost.error().message.find("rank 1 (host b) was lost"), std::string::npos);
    EXPECT_NE(lost.error().message.find("killed by signal 9"), std::string::npos)
        << lost.error().message;
    EXPECT_LT((NowNs() - begin_ns) / 1'000'000, kLongMs / 2);
}

// A long value on a slow network: its sender is not silent, and its receiver is not stuck.
TEST(Control, ALongMessageOnASlowNetworkMoves) {
    constexpr int64_t kShortMs = 800;
    auto ends = MakeSocketPair().value();
    auto sessions = MakeSessionPair(kShortMs);
    Control::Options options;
    options.timeout_ms = kShortMs;
    options.local = false;
    Control control(options);
    control.AddPeer(1, std::move(ends.second), sessions.second, 0);
    control.SetHosts({"a", "b"});
    ASSERT_TRUE(control.Start().ok());
    control.Assign(Assignment(1, 1, {"a", "b"}));
    std::atomic<bool> over = false;
    std::thread slow([&, fd = std::move(ends.first)] {
        HeartbeatMessage beat;
        beat.rank_waits.waits = {{0, 3, 12, 0, "all_reduce", 2 * kShortMs}};
        Bytes bytes;
        SealFrame(sessions.first, bytes, FrameType::kHeartbeat, Encode(beat));
        const size_t first = bytes.size();
        const ValueMessage value{1, "sum", std::string(20'000, 'x'), 1};
        SealFrame(sessions.first, bytes, FrameType::kValue, Encode(value));
        ASSERT_EQ(::write(fd.get(), bytes.data(), first), static_cast<ssize_t>(first));
        const test::Pace network(100'000);
        for (size_t at = first; at < bytes.size();) {
            const size_t count = std::min<size_t>(1000, bytes.size() - at);
            ASSERT_EQ(::write(fd.get(), bytes.data() + at, count), static_cast<ssize_t>(count));
            at += count;
            network.Next();
        }
        over.wait(false);  // the connection stays open
    });
    const auto pick = [](const std::vector<std::string>& all) -> Result<std::string> {
        return all[1];
    };
    const auto result = control.Round("sum", "mine", pick, Deadline::In(10 * kShortMs));
    over = true;
    over.notify_all();
    slow.join();
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->size(), 20'000u);
}

// The stepping thread waits for another thread; only that thread's wait counts.
TEST(Control, StandsWhereTheThreadStandsThatItAwaits) {
    Pair pair = Connect();
    Control::Options options;
    options.timeout_ms = kEpochTimeoutMs;
    options.rank = -1;
    options.local = false;
    Control control(options);
    control.AddPeer(0, std::move(pair.near), pair.session, 0);
    ASSERT_TRUE(control.Start().ok());
    // (Up to three heartbeats may have been sent before.)
    const auto rank_waits = [&] {
        for (int i = 0; i < 3; ++i) pair.far->Await(FrameType::kHeartbeat);
        return Decode<HeartbeatMessage>(pair.far->Await(FrameType::kHeartbeat))->rank_waits;
    };
    std::atomic<bool> waits = false, over = false;
    std::thread sends([&] {
        control.OnLongWait(2, {"send", 1, 1});
        over.wait(false);
    });
    std::thread sums([&] {
        waits.wait(false);
        control.OnLongWait(3, {"all_reduce", 5, 1});
        over.wait(false);
    });
    control.OnOwnWait(true, sums.get_id());
    RankWaits found = rank_waits();
    EXPECT_TRUE(found.waits.empty() && !found.awaits_own) << "it computes";
    EXPECT_EQ(found.beside.size(), 1u);
    waits = true;
    waits.notify_all();
    found = rank_waits();
    ASSERT_EQ(found.waits.size(), 1u);
    EXPECT_EQ(found.waits[0].on, 3);
    control.OnOwnWait(false, sums.get_id());
    found = rank_waits();
    EXPECT_TRUE(found.waits.empty());
    EXPECT_EQ(found.beside.size(), 2u);
    over = true;
    over.notify_all();
    sends.join();
    sums.join();
}

// A busy machine may delay rank 0's answer.
TEST(WorkerEpoch, WaitsForTheVerdictOfRankZero) {
    Worker worker;
    ASSERT_TRUE(worker.Start());
    FarEnd& far = *worker.pair.far;
    std::thread late([&] {
        far.Await(FrameType::kFailure);
        test::Outlast(kLateMs);
        far.Send(FrameType::kVerdict, Encode(VerdictMessage{ErrorCode::kPeerLost, 1,
                                                            "rank 1 was lost", "killed", 1, true}));
    });
    const Status ended = worker.control.EndEpoch({ErrorCode::kPeerLost, "a step failed"});
    late.join();
    EXPECT_TRUE(ended.ok()) << ended.error().message;
}

// No rank continues without rank 0, so its main thread has four timeouts to notice the end of an
// epoch.
TEST(RootWatchdog, IsPatientWhereTheJobGoesOn) {
    constexpr int64_t kShortMs = 800;
    for (const int64_t held_up_ms : {2 * kShortMs, int64_t{60'000}}) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            Control::Options options;
            options.timeout_ms = kShortMs;
            options.watchdog_ms = kShortMs / 4;
            options.recover = true;
            Control control(options);
            Pair pair = Connect();
            control.AddPeer(1, std::move(pair.near), pair.session, 0);
            control.SetHosts({"a", "b"});
            if (!control.Start().ok()) ::_exit(1);
            pair.far->Close();
            test::Outlast(held_up_ms);
            ::_exit(0);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), held_up_ms < 60'000 ? 0 : ExitStatus(ErrorCode::kPeerLost));
    }
}

// While a worker waits for the next epoch, rank 0 may end, or report that there is none.
TEST(WorkerEpoch, EndsWithRankZero) {
    for (const bool says : {true, false}) {
        Worker worker;
        ASSERT_TRUE(worker.Start());
        Pair& pair = worker.pair;
        Control& control = worker.control;
        VerdictMessage verdict{ErrorCode::kPeerLost, 1, "rank 1 was lost", "killed", 1, true};
        pair.far->Send(FrameType::kVerdict, Encode(verdict));
        ASSERT_TRUE(control.EndEpoch({ErrorCode::kPeerLost, "a step failed"}).ok());
        control.LeaveEpoch({});
        verdict.recover = false;
        verdict.text = "there is no next epoch";
        if (says) {
            pair.far->Send(FrameType::kVerdict, Encode(verdict));
        } else {
            pair.far->Close();
        }
        const auto next = control.WaitForAssignment(Deadline::In(kEpochTimeoutMs));
        ASSERT_FALSE(next.ok());
        const char* words = says ? "there is no next epoch" : "rank 0 (host a) was lost";
        EXPECT_NE(next.error().message.find(words), std::string::npos) << next.error().message;
    }
}

}  // namespace
}  // namespace weft::cluster
