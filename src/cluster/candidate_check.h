// Rank 0's side of a join request (join_check.h): one worker that dialed in, from the first request
// until rank 0 admits or rejects it. Meanwhile heartbeats go both ways, as in a job. The worker's
// behavior does not affect the running ranks. Thread: one at a time (DialIn holds its lock).
#pragma once

#include <optional>
#include <string>

#include "cluster/channel.h"
#include "cluster/join_check.h"

namespace weft::cluster {

class CandidateCheck {
  public:
    // timeout_ms: silence after which the worker counts as lost.
    CandidateCheck(Channel channel, int64_t timeout_ms);

    // Sends the request, unless it equals the last one.
    void Ask(const JoinRequest& request);
    // Reads what has arrived, sends a heartbeat, checks the time.
    void Turn();
    // Whether the worker passed the last request.
    bool fit() const { return fit_; }
    // True: the answer takes so long that other workers need not wait for it. A slow disk can cause
    // this.
    bool slow() const {
        return !fit_ && NowNs() - asked_ns_ > kSlowTimeouts * timeout_ms_ * kNsPerMs;
    }
    // Why it can't join, in words after "b (10.0.0.2:51840) can't join: "; nullopt: it may.
    const std::optional<Error>& fault() const { return fault_; }
    // Tells the worker, if it still answers; the worker ends the process of the would-be rank.
    void SendAway(const Error& why);
    // Moves the connection out, for the rank that the worker becomes.
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
