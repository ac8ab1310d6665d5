// Rank 0's side of a join request (join_check.h): one worker that dialled in, from the first
// question until it is taken into an epoch or sent away. Heartbeats go both ways meanwhile, as in a
// job; nothing that it does or leaves undone reaches the ranks that run.
// Thread: one at a time (DialIn holds its lock).
#pragma once

#include <optional>
#include <string>

#include "cluster/channel.h"
#include "cluster/join_check.h"

namespace weft::cluster {

class CandidateCheck {
  public:
    // timeout_ms: silence after which it is given up.
    CandidateCheck(Channel channel, int64_t timeout_ms);

    // Asks it, unless that is what it was asked last.
    void Ask(const JoinRequest& request);
    // Takes what has come, says that rank 0 is there, looks at the clock.
    void Turn();
    // Whether it is fit for what it was asked last.
    bool fit() const { return fit_; }
    // Whether it has said nothing to that for so long that others need not wait for it: it may have
    // a slow disk.
    bool slow() const {
        return !fit_ && NowNs() - asked_ns_ > kSlowTimeouts * timeout_ms_ * kNsPerMs;
    }
    // Why it can't join, in words that follow "b (10.0.0.2:51840) can't join: "; nullopt: it may.
    const std::optional<Error>& fault() const { return fault_; }
    // The worker is told so, if it still hears, and ends the process that was to be its rank.
    void SendAway(const Error& why);
    // The connection as it stands, for the rank that it becomes.
    Channel::Taken Take() { return channel_.Take(); }

  private:
    static constexpr int64_t kSlowTimeouts = 3;

    void OnFrame(FrameType type, View payload);
    void OnAnswer(const ExaminedMessage& answer);
    void Blame(ErrorCode code, std::string why);

    Channel channel_;
    int64_t timeout_ms_;
    int64_t asked_ns_ = 0, heard_ns_ = 0, beat_ns_ = 0;
    ExamineMessage asked_{.number = 0};
    bool fit_ = false;
    std::optional<Error> fault_;
};

}  // namespace weft::cluster
